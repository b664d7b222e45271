/**
 * A process that mounts a `MemoryFileSystem` and serves it until it is told to stop (or is killed). Driven over IPC: the
 * test must not serve the mount that it makes blocking calls on.
 */

import { pino } from 'pino';
import { type MountHandle, type MountOptions, mountFileSystem } from '../../src/fuse/driver.js';
import { MemoryFileSystem } from './memory-file-system.js';
import type { MountServerCommand, MountServerConfig, MountServerReply, MountServerState } from './mount-client.js';

let fileSystem: MemoryFileSystem | undefined;
let mount: MountHandle | undefined;
let ended = false;

async function start(config: MountServerConfig): Promise<MountServerState> {
  const { attributeTimeoutMs, files, ...options } = config;
  fileSystem = new MemoryFileSystem(files, attributeTimeoutMs === undefined ? {} : { attributeTimeoutMs });
  const mountOptions: MountOptions = { ...options, log: pino({ level: 'info' }, pino.destination(2)) };
  mount = await mountFileSystem(fileSystem, mountOptions);
  mount.ended.then(() => {
    ended = true;
  });
  return state();
}

function state(): MountServerState {
  return {
    driver: mount?.driver ?? 'kernel',
    passthrough: mount?.passthrough ?? false,
    ended,
    statistics: mount?.statistics() ?? {
      requests: {},
      waitingOpens: 0,
      openHandles: 0,
      openDirectories: 0,
      backingIds: 0,
    },
    fileSystem: {
      waitingOpens: fileSystem?.waitingOpens ?? 0,
      openDescriptors: fileSystem?.openDescriptors ?? 0,
      events: fileSystem?.events ?? [],
    },
  };
}

async function execute(command: MountServerCommand): Promise<MountServerState> {
  switch (command.kind) {
    case 'start':
      return start(command.config);
    case 'state':
      return state();
    case 'finish':
      fileSystem?.finish();
      return state();
    case 'unmount':
      await mount?.unmount({ lazy: command.lazy, drainTimeoutMs: command.drainTimeoutMs });
      return state();
  }
}

process.on('message', (command: MountServerCommand) => {
  const reply = (message: MountServerReply): void => void process.send?.(message);
  execute(command).then(
    (result) => reply({ id: command.id, state: result }),
    (error: unknown) => {
      const text = error instanceof Error ? error.message : String(error);
      reply({
        id: command.id,
        error: text,
        errno: error instanceof Error && 'errno' in error ? String(error.errno) : '',
      });
    },
  );
});
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
