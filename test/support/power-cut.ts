/**
 * What a disk may hold after the power went, given what was asked of it until then. Only what was synced is sure: the content
 * of a file by its own fsync, a name by one of its folder. Of all else anything may have reached the disk: any of the pending
 * names in any combination, and of a file's unsynced bytes none, some, or their length alone (zeros).
 */

import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Random } from './random.js';
import type { DiskOperation } from './system-calls.js';

/** What became of bytes that were written and not synced. */
export const FATES = ['lost', 'torn', 'zeroed', 'kept'] as const;
export type Fate = (typeof FATES)[number];

interface Inode {
  readonly number: number;
  content: Buffer;
  durable: Buffer;
  modifiedSeconds: number;
  durableModifiedSeconds: number;
}

/** A change of names. It is applied to what is there only where it still makes sense. */
interface NameChange {
  readonly folder: string;
  isDurable: boolean;
  apply(names: Map<string, Inode | 'folder'>): void;
}

export interface DiskState {
  /** The same for states that can't be told apart. */
  readonly fingerprint: string;
  /** Of all files and folders. */
  readonly paths: ReadonlySet<string>;
  /** Makes `root`, which must not exist, what the disk holds. */
  write(): void;
}

export class PowerCut {
  readonly #root: string;
  readonly #names = new Map<string, Inode | 'folder'>();
  readonly #changes: NameChange[] = [];
  #inodes = 0;

  constructor(root: string) {
    this.#root = root;
  }

  /** The next thing that is asked of the disk. */
  perform(operation: DiskOperation): void {
    switch (operation.kind) {
      case 'create': {
        const known = this.#names.get(operation.path);
        if (known === undefined) this.#create(operation.path);
        else if (operation.truncates) this.#file(operation.path).content = Buffer.alloc(0);
        return;
      }
      case 'write': {
        const file = this.#file(operation.path);
        const at = operation.at ?? file.content.length;
        const end = at + operation.bytes.length;
        const content = Buffer.concat([file.content, Buffer.alloc(Math.max(0, end - file.content.length))]);
        operation.bytes.copy(content, at);
        file.content = content;
        // Nobody writes to a blob but a disk that rots.
        if (operation.path.startsWith(`${this.#root}/blobs/`)) file.durable = content;
        return;
      }
      case 'truncate': {
        const file = this.#file(operation.path);
        file.content = Buffer.concat([file.content, Buffer.alloc(operation.sizeBytes)]).subarray(
          0,
          operation.sizeBytes,
        );
        return;
      }
      case 'modified':
        this.#file(operation.path).modifiedSeconds = operation.seconds;
        return;
      case 'sync':
        this.#sync(operation.path);
        return;
      case 'rename':
        this.#rename(operation.from, operation.to);
        return;
      case 'remove': {
        const file = this.#file(operation.path);
        this.#change(operation.path, (names) => {
          if (names.get(operation.path) === file) names.delete(operation.path);
        });
        return;
      }
      case 'folder':
        this.#change(operation.path, (names) => put(names, operation.path, 'folder'));
    }
  }

  /** The states that the disk may be in if the power goes now: several choices of pending names, each with every fate. */
  states(random: Random): DiskState[] {
    const pending = this.#changes.filter(({ isDurable }) => !isDurable);
    // As a journal has it: all up to some point.
    const journaled = random.below(pending.length + 1);
    const choices = [
      new Set<NameChange>(),
      new Set(pending),
      new Set(pending.slice(0, journaled)),
      new Set(pending.filter(() => random.below(2) === 0)),
      new Set(pending.filter(() => random.below(4) > 0)),
    ];
    return choices.flatMap((chosen) => FATES.map((fate) => this.#state(chosen, fate)));
  }

  #state(chosen: ReadonlySet<NameChange>, fate: Fate): DiskState {
    const names = new Map<string, Inode | 'folder'>([[this.#root, 'folder']]);
    for (const change of this.#changes) if (change.isDurable || chosen.has(change)) change.apply(names);
    const entries = [...names].map(([path, entry]) => {
      return { path, file: entry === 'folder' ? undefined : contentAfter(entry, fate) };
    });
    const hash = createHash('sha1');
    for (const { path, file } of entries) {
      hash.update(`${path}\n${file?.content.length}\n${file?.modifiedSeconds}\n`);
      if (file !== undefined) hash.update(file.content);
    }
    return {
      fingerprint: hash.digest('hex'),
      paths: new Set(names.keys()),
      write: () => {
        rmSync(this.#root, { recursive: true, force: true });
        for (const { path, file } of entries) {
          if (file === undefined) mkdirSync(path, { recursive: true });
          else {
            writeFileSync(path, file.content);
            utimesSync(path, file.modifiedSeconds, file.modifiedSeconds);
          }
        }
      },
    };
  }

  #create(path: string): void {
    this.#inodes += 1;
    const nothing = Buffer.alloc(0);
    const inode: Inode = {
      number: this.#inodes,
      content: nothing,
      durable: nothing,
      modifiedSeconds: 1,
      durableModifiedSeconds: 1,
    };
    this.#change(path, (names) => put(names, path, inode));
  }

  #rename(from: string, to: string): void {
    const file = this.#file(from);
    this.#change(to, (names) => {
      if (names.get(from) === file) names.delete(from);
      put(names, to, file);
    });
  }

  #sync(path: string): void {
    const entry = this.#names.get(path);
    if (entry === undefined) throw new Error(`${path} is synced, and not there`);
    if (entry === 'folder') {
      for (const change of this.#changes) if (change.folder === path) change.isDurable = true;
      return;
    }
    entry.durable = entry.content;
    entry.durableModifiedSeconds = entry.modifiedSeconds;
  }

  #change(path: string, apply: NameChange['apply']): void {
    apply(this.#names);
    // The folder that all of it lies in is there for good.
    this.#changes.push({ folder: dirname(path), isDurable: path === this.#root, apply });
  }

  #file(path: string): Inode {
    const entry = this.#names.get(path);
    if (entry === undefined || entry === 'folder') throw new Error(`${path} is no file that was created`);
    return entry;
  }
}

function put(names: Map<string, Inode | 'folder'>, path: string, entry: Inode | 'folder'): void {
  if (names.has(dirname(path)) || entry === 'folder' || names.size === 0) names.set(path, entry);
}

function contentAfter(inode: Inode, fate: Fate): { readonly content: Buffer; readonly modifiedSeconds: number } {
  const { content, durable, modifiedSeconds, durableModifiedSeconds } = inode;
  switch (fate) {
    case 'lost':
      return { content: durable, modifiedSeconds: durableModifiedSeconds };
    case 'kept':
      return { content, modifiedSeconds };
    case 'torn': {
      const common = Math.min(durable.length, content.length);
      return { content: content.subarray(0, common + ((content.length - common) >> 1)), modifiedSeconds };
    }
    case 'zeroed': {
      const zeroed = Buffer.alloc(content.length);
      durable.copy(zeroed);
      return { content: zeroed, modifiedSeconds };
    }
  }
}
