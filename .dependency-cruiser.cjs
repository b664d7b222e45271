/**
 * Which room may know which. Arrows point down only:
 * cli > doctor > daemon > filesystem > {catalog, blobs}; blobs > {destinations, sources, verify, locks}; destinations > {sources, locks}; fuse knows only filesystem/contract.
 */
const below = {
  cli: [
    'datasets',
    'doctor',
    'daemon',
    'demo',
    'filesystem',
    'catalog',
    'blobs',
    'destinations',
    'sources',
    'verify',
    'fuse',
  ],
  doctor: ['daemon', 'catalog', 'blobs', 'destinations', 'sources', 'verify', 'fuse'],
  daemon: ['filesystem', 'catalog', 'blobs', 'destinations', 'sources', 'verify', 'fuse'],
  filesystem: ['catalog', 'blobs'],
  blobs: ['destinations', 'sources', 'verify', 'locks'],
  destinations: ['sources', 'locks'],
  catalog: ['sources'],
  datasets: [],
  sources: [],
  verify: [],
  locks: [],
  fuse: [],
  demo: [],
};

module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-unlisted-package',
      severity: 'error',
      from: { path: '^src' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown', 'unknown'] },
    },
    ...Object.entries(below).map(([room, allowed]) => ({
      name: `${room}-looks-down-only`,
      severity: 'error',
      from: { path: `^src/${room}/` },
      to: {
        path: '^src/[^/]+/',
        pathNot: [
          `^src/(${[room, ...allowed].join('|')})/`,
          // Types only: the words in which the rooms speak to each other.
          ...(room === 'fuse' ? ['^src/filesystem/contract\\.ts$'] : []),
        ],
      },
    })),
    {
      name: 'foundation-stands-alone',
      comment: 'Files directly in src (errors, libc) know no room.',
      severity: 'error',
      from: { path: '^src/[^/]+\\.ts$' },
      to: { path: '^src/[^/]+/' },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
    },
  },
};
