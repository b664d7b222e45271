/**
 * The fuse-native driver: libfuse 2 through a native add-on, for machines where the kernel driver can't run.
 *
 * What it can't do, and the kernel driver can:
 * - pass reads through, or serve them off the main thread: each read is relayed, at most 128 KiB at a time;
 * - end an `open` whose caller was killed or interrupted: such a process goes only when the open ends;
 * - tell the file system who the caller is;
 * - keep up with dozens of processes that open and close without a pause: closing lags behind, and descriptors pile up;
 * - show inode numbers that stay the same over restarts (it has 32 bits for them).
 *
 * It needs libfuse.so.2 and a program called fusermount. Its `configure` step, which installs bundled set-uid scripts
 * with sudo, is not needed with those and never called.
 */

import { readFileSync } from 'node:fs';
import { readdir, readlink } from 'node:fs/promises';
import { constants } from 'node:os';
import type Fuse from 'fuse-native';
import type { Operations, Signal } from 'fuse-native';
import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../../errors.js';
import type { FileSystem } from '../../filesystem/contract.js';
import { ALLOW_OTHER_REMEDY, escapeOption } from '../fusermount.js';
import type { DriverStatistics, MountHandle, MountOptions } from '../mount-handle.js';
import { MOUNT_TYPE, topMountAt } from '../mount-table.js';
import { takeAway } from '../take-away.js';
import { OpenHandles } from './open-handles.js';
import { PathAdapter } from './path-adapter.js';

type FuseClass = typeof Fuse;

/** The add-on keeps mount point and options in buffers of 1024 bytes each, and cuts off what is longer. */
const MAX_ARGUMENT_BYTES = 1023;
/** The largest read of libfuse 2. */
const MAX_READ_BYTES = 131_072;
const MS_PER_SECOND = 1000;
/** The add-on does not say when the connection has ended, so the descriptor that libfuse closes then is looked at. */
const END_CHECK_INTERVAL_MS = 250;
const FUSE_CONFIGURATION = '/etc/fuse.conf';

/** Mounts and starts to serve. Errors: ENOTSUP the add-on can't be loaded; EPERM; EIO libfuse says no. */
export async function mountThroughFuseNative(fileSystem: FileSystem, options: MountOptions): Promise<MountHandle> {
  const FuseBase = await loadFuseNative();
  if (options.allowOther) checkAllowOther(options.mountpoint);
  const argument = `-o${mountArguments(fileSystem, options).join(',')}`;
  for (const text of [options.mountpoint, argument]) {
    if (Buffer.byteLength(text) > MAX_ARGUMENT_BYTES) {
      throw new TmaxError('ENAMETOOLONG', `fuse-native takes at most ${MAX_ARGUMENT_BYTES} bytes, but got ${text}`);
    }
  }
  const service = new NativeService(fileSystem, options.log);
  const before = await fuseDescriptors();
  const fuse = service.createFuse(FuseBase, options.mountpoint, argument);
  await new Promise<void>((resolve, reject) => {
    fuse.open((error) => (error === null ? resolve() : reject(libraryRefused(options.mountpoint, error))));
  });
  const device = (await fuseDescriptors()).find((descriptor) => !before.includes(descriptor));
  options.log.info({ mountpoint: options.mountpoint, driver: 'fuse-native' }, 'mounted');
  return new NativeMount(service, fuse, device, options);
}

async function loadFuseNative(): Promise<FuseClass> {
  try {
    const { default: FuseBase } = await import('fuse-native');
    // close() would unmount lazily through a shell; here the mount is already gone when it is called.
    FuseBase.unmount = (_mountpoint, done) => done(null);
    return FuseBase;
  } catch (error) {
    const reason = messageOf(error);
    const remedy = reason.includes('libfuse')
      ? 'install libfuse 2 (Debian and Ubuntu: libfuse2, Fedora and RHEL: fuse-libs)'
      : 'install it with: npm install fuse-native';
    throw new TmaxError('ENOTSUP', `the driver fuse-native can't be loaded (${reason}); ${remedy}`, {
      cause: error,
      source: 'kernel',
    });
  }
}

function mountArguments(fileSystem: FileSystem, { fsName, allowOther, noExec }: MountOptions): readonly string[] {
  const timeoutSeconds = fileSystem.timeouts.nameMs / MS_PER_SECOND;
  return [
    'ro',
    'default_permissions',
    'kernel_cache',
    'use_ino',
    `max_read=${MAX_READ_BYTES}`,
    `entry_timeout=${timeoutSeconds}`,
    `attr_timeout=${timeoutSeconds}`,
    `subtype=${MOUNT_TYPE.split('.')[1] ?? ''}`,
    escapeOption(`fsname=${fsName}`),
    ...(allowOther ? ['allow_other'] : []),
    ...(noExec ? ['noexec'] : []),
  ];
}

/** libfuse would say this on standard error only. */
function checkAllowOther(mountpoint: string): void {
  if (process.geteuid?.() === 0) return;
  let configuration = '';
  try {
    configuration = readFileSync(FUSE_CONFIGURATION, 'utf8');
  } catch {
    // No such file, no such line in it.
  }
  if (/^user_allow_other\s*$/m.test(configuration)) return;
  throw new TmaxError('EPERM', `can't mount on ${mountpoint} for other users too. ${ALLOW_OTHER_REMEDY}`, {
    source: 'kernel',
  });
}

function libraryRefused(mountpoint: string, cause: unknown): TmaxError {
  const message = `libfuse can't mount on ${mountpoint}; standard error says why. It needs /dev/fuse, and the program fusermount on the PATH for users other than root`;
  return new TmaxError('EIO', message, { cause, source: 'kernel', level: 'error' });
}

/** Descriptors of /dev/fuse in this process. */
async function fuseDescriptors(): Promise<readonly string[]> {
  const descriptors = await readdir('/proc/self/fd');
  const targets = await Promise.all(descriptors.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => '')));
  return descriptors.filter((_, index) => targets[index] === '/dev/fuse');
}

/** The calls of libfuse, answered. */
class NativeService {
  readonly handles: OpenHandles;
  /** Requests so far, by the name of their opcode in the kernel's protocol. */
  readonly requests: Record<string, number> = {};
  readonly #paths: PathAdapter;
  readonly #log: Logger;

  constructor(fileSystem: FileSystem, log: Logger) {
    this.handles = new OpenHandles(fileSystem);
    this.#paths = new PathAdapter(fileSystem);
    this.#log = log;
  }

  createFuse(FuseBase: FuseClass, mountpoint: string, argument: string): Fuse {
    const extendedAttribute = (signal: Signal, value: Buffer, read: () => Buffer): void =>
      this.#answerSized(signal, value, read);
    const paths = this.#paths;
    class TmaxFuse extends FuseBase {
      override _fuseOptions(): string {
        return argument;
      }
      // The originals know no ERANGE: a value longer than the buffer makes libfuse read past its end.
      override _op_getxattr(signal: Signal, path: string, name: string, value: Buffer): void {
        extendedAttribute(signal, value, () => paths.extendedAttribute(path, name));
      }
      override _op_listxattr(signal: Signal, path: string, list: Buffer): void {
        extendedAttribute(signal, list, () => paths.extendedAttributeNames(path));
      }
    }
    return new TmaxFuse(mountpoint, this.#operations(), { timeout: false });
  }

  #operations(): Operations {
    return {
      statfs: (_path, done) => this.#answer('STATFS', done, () => done(0, this.#paths.statfs())),
      getattr: (path, done) => this.#answer('GETATTR', done, () => done(0, this.#paths.stat(path))),
      readdir: (path, done) =>
        this.#answer('READDIR', done, () => {
          const { names, stats } = this.#paths.list(path);
          done(0, names, stats);
        }),
      open: (path, _flags, done) =>
        this.#answer('OPEN', done, async () => done(0, await this.handles.open(this.#paths.resolve(path).inode))),
      read: (_path, handle, buffer, length, offset, done) =>
        this.#answer('READ', done, async () => done(await this.handles.read(handle, buffer, length, offset))),
      release: (_path, handle, done) =>
        this.#answer('RELEASE', done, () => {
          this.handles.release(handle);
          done(0);
        }),
      getxattr: () => undefined,
      listxattr: () => undefined,
    };
  }

  #answer(request: string, done: (result: number) => void, answer: () => void | Promise<void>): void {
    this.#count(request);
    Promise.resolve()
      .then(answer)
      .catch((error: unknown) => done(this.#failure(error, request)));
  }

  #answerSized(signal: Signal, buffer: Buffer, read: () => Buffer): void {
    this.#count('GETXATTR');
    let result: number;
    try {
      const value = read();
      if (buffer.length > 0 && value.length > buffer.length) {
        result = -constants.errno.ERANGE;
      } else {
        value.copy(buffer);
        result = value.length;
      }
    } catch (error) {
      result = this.#failure(error, 'GETXATTR');
    }
    signal(result, buffer.buffer);
  }

  /** A `TmaxError` has been logged where it arose; anything else is a bug, and nobody else would tell. */
  #failure(thrown: unknown, request: string): number {
    const error = toTmaxError(thrown, 'kernel');
    if (error !== thrown) this.#log.error({ err: thrown, request }, 'a request failed');
    return -error.errnoNumber;
  }

  #count(request: string): void {
    this.requests[request] = (this.requests[request] ?? 0) + 1;
  }
}

class NativeMount implements MountHandle {
  readonly driver = 'fuse-native';
  readonly passthrough = false;
  readonly ended: Promise<void>;
  readonly #service: NativeService;
  readonly #options: MountOptions;
  readonly #deviceNumber: string | undefined;

  /** `device` is the number of libfuse's descriptor of /dev/fuse. */
  constructor(service: NativeService, fuse: Fuse, device: string | undefined, options: MountOptions) {
    this.#service = service;
    this.#options = options;
    this.#deviceNumber = topMountAt(options.mountpoint)?.device;
    this.ended = descriptorClosed(device).then(async () => {
      service.handles.releaseAll();
      await new Promise<void>((resolve) => fuse.close(() => resolve()));
      options.log.info({ mountpoint: options.mountpoint }, 'unmounted');
    });
  }

  statistics(): DriverStatistics {
    const { requests, handles } = this.#service;
    return {
      requests: { ...requests },
      waitingOpens: handles.waitingCount,
      openHandles: handles.openCount,
      openDirectories: 0,
      backingIds: 0,
    };
  }

  unmount(options: { readonly lazy: boolean; readonly drainTimeoutMs: number }): Promise<void> {
    const { handles } = this.#service;
    return takeAway(
      {
        mountpoint: this.#options.mountpoint,
        deviceNumber: this.#deviceNumber,
        ended: this.ended,
        waitingHolders: [],
        openFileCount: () => handles.openCount,
        abandonWaitingOpens: () => handles.abandonWaiting(),
        log: this.#options.log,
      },
      options,
    );
  }
}

/** Resolves when `descriptor` is no longer /dev/fuse. */
function descriptorClosed(descriptor: string | undefined): Promise<void> {
  return new Promise((resolve) => {
    const timer = setInterval(async () => {
      const target = await readlink(`/proc/self/fd/${descriptor}`).catch(() => '');
      if (target === '/dev/fuse') return;
      clearInterval(timer);
      resolve();
    }, END_CHECK_INTERVAL_MS);
  });
}
