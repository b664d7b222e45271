/** The commands that start, change and end a daemon. */

import type { Command } from 'commander';
import { SERVED_ARCHITECTURES } from '../blobs/architecture-gate.js';
import { DRIVERS, defaultThreads, LOG_LEVELS } from '../daemon/settings.js';
import { VERIFY_LEVELS } from '../verify/verdict.js';
import { ALLOW_OTHER, cacheOptions, DEFAULT_THREADS, flag, listOption, option, poolOptions } from './option.js';

/** Node, this program, `mount`. */
const WORDS_BEFORE_OPTIONS = 3;

/** Adds `mount`, `unmount` and `reload`. `argv`: of the command that is run, to be handed to a daemon in the background. */
export function defineMount(tmaxfs: Command, argv: readonly string[]): void {
  const mount = tmaxfs
    .command('mount')
    .description('mount a pool; returns when its tree is readable')
    .argument('<mountpoint>', 'an empty folder');
  for (const one of [...poolOptions(), ...cacheOptions()]) mount.addOption(one);
  mount
    .addOption(
      option('--cache-size <size>', 'most that the cache may hold, bytes or share of the disk').default('200G'),
    )
    .addOption(option('--reserve-free <size>', 'what the cache leaves free on its disk').default('5%'))
    .addOption(
      option('--verify <level>', 'what is proven before an image can be seen')
        .choices(VERIFY_LEVELS)
        .default('structure'),
    )
    .addOption(
      option('--verify-threads <number>', 'threads that prove images').default(
        String(defaultThreads()),
        DEFAULT_THREADS,
      ),
    )
    .addOption(
      option('--arch <which>', 'serve images for any machine, or refuse those that are not for this host')
        .choices(SERVED_ARCHITECTURES)
        .default('any'),
    )
    .addOption(option('--scrub <period>', 'hash every idle image once in that time, or "off"').default('30d'))
    .addOption(
      listOption(
        '--source <place>',
        'where images are fetched from, several in the order in which they are asked: "hub"; "dir:/path" with the ' +
          'cache of the Hub, a downloaded repository, or another cache of tmaxfs in it; "oci://host/name", a registry ("oci+http:" without TLS); ' +
          'a URL with {sha256} or {path} in it; or "dragonfly://host:port", the HTTP proxy of a Dragonfly daemon (default: hub)',
        /hub|dir:|oci(?:\+http)?:|https?:|dragonfly:/,
      ),
    )
    .addOption(
      listOption(
        '--publish <place>',
        'where fetched and proven images are written to, for other nodes: "dir:/path", a directory that they share, or ' +
          '"oci://host/name", a registry ("oci+http:" without TLS); each is also asked first for images, unless --source names it (default: nowhere)',
        /dir:|oci(?:\+http)?:/,
      ),
    )
    .addOption(
      option(
        '--publish-reserve <size>',
        'what publishing leaves free in directories, bytes or share of the disk',
      ).default('5%'),
    )
    .addOption(
      option(
        '--publish-size <size>',
        'most that all images in a directory may take (default: what the reserve leaves)',
      ),
    )
    .addOption(option('--open-timeout <duration>', 'how long an open waits for its image').default('540'))
    .addOption(
      option(
        '--start-timeout <duration>',
        'how long a start goes on asking a Hub that does not answer (default: half a minute)',
      ),
    )
    .addOption(option('--connections <number>', 'connections that one image may come over').default('4'))
    .addOption(option('--max-fetches <number>', 'images fetched at one time').default('8'))
    .addOption(option('--connect-timeout <duration>', 'longest wait for a connection').default('10'))
    .addOption(
      option('--first-byte-timeout <duration>', 'longest wait for an answer (default: HF_HUB_ETAG_TIMEOUT, or 30)'),
    )
    .addOption(
      option('--idle-timeout <duration>', 'longest silence within a body (default: HF_HUB_DOWNLOAD_TIMEOUT, or 20)'),
    )
    .addOption(
      option('--min-speed <size>', 'bytes a second below which a connection is given up; 0: never').default('16K'),
    )
    .addOption(option('--follow <period>', 'how often a branch or tag is resolved anew, or "off" (default: off)'))
    .addOption(option('--driver <name>', 'how the kernel is spoken to').choices(DRIVERS).default('auto'))
    .addOption(flag(ALLOW_OTHER, 'let other users in').default(process.getuid?.() === 0, 'yes for root, else no'))
    .addOption(flag('--no-allow-other', 'keep other users out'))
    .addOption(
      flag('--noexec', 'let nothing on it be executed directly (apptainer runs images all the same)').default(false),
    )
    .addOption(option('--uid <number>', 'owner shown for every file (default: this user)'))
    .addOption(option('--gid <number>', 'group shown for every file (default: this group)'))
    .addOption(flag('--offline', 'serve what is on this disk, ask no network').default(false))
    .addOption(
      option(
        '--metrics-port <port>',
        'show metrics and a status page at that port of 127.0.0.1; 0: any (default: off)',
      ),
    )
    .addOption(option('--control-group <group>', 'name or number of a group that may give orders too (default: none)'))
    .addOption(flag('--foreground', 'stay here and log to standard error').default(false))
    .addOption(
      option(
        '--log-file <file>',
        'log into a file, rolled by size (default in the background: /var/log/tmaxfs/<mount point>.log, for ordinary users below $XDG_STATE_HOME/tmaxfs; "tmaxfs status" shows it)',
      ),
    )
    .addOption(option('--log-level <level>', 'least level that is logged').choices(LOG_LEVELS).default('info'))
    .action(async (mountpoint: string, options) =>
      (await import('./mount.js')).mount({ ...options, mountpoint }, argv.slice(WORDS_BEFORE_OPTIONS)),
    );

  tmaxfs
    .command('unmount')
    .description('unmount and end the daemon')
    .argument('[mountpoint]', 'may be left out with --dead, which then looks at every mount')
    .addOption(flag('--lazy', 'detach now, even if busy; files that are open go on working').default(false))
    .option('--dead', 'take away only what a killed daemon has left; one that lives is left alone', false)
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./unmount.js')).unmountCommand(mountpoint, options),
    );

  tmaxfs
    .command('reload')
    .description('look for a newer commit of the revision now, and show it')
    .argument('[mountpoint]', 'may be left out where there is one')
    .action(async (mountpoint: string | undefined) => (await import('./reload.js')).reloadCommand(mountpoint));
}
