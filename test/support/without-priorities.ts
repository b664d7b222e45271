/**
 * A daemon's threads where a filter of system calls (seccomp(2)) answers ENOSYS to all that is about priorities and turns, as in some
 * containers. Says "ok" once each has asked for its own.
 */

import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { isMainThread, Worker } from 'node:worker_threads';
import { answerFirst, leaveBehind, workBehind } from '../../src/scheduling.js';

const PR_SET_NO_NEW_PRIVS = 38;
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;
const SECCOMP_RET_ALLOW = 0x7fff0000;
const SECCOMP_RET_ERRNO = 0x00050000;
/** BPF_LD | BPF_W | BPF_ABS, of offset 0: the number of the call. */
const LOAD_WORD = 0x20;
/** BPF_JMP | BPF_JEQ | BPF_K. */
const JUMP_IF_EQUAL = 0x15;
/** BPF_RET | BPF_K. */
const RETURN = 0x06;
/** getpriority(2) and setpriority(2), which have each other's numbers on x64 and arm64, and sched_setattr(2). */
const REFUSED = [140, 141, process.arch === 'arm64' ? 274 : 314];

function refusePriorities(): void {
  const koffi: typeof import('koffi') = createRequire(import.meta.url)('koffi');
  const filter = koffi.struct({ code: 'uint16_t', jt: 'uint8_t', jf: 'uint8_t', k: 'uint32_t' });
  const program = koffi.struct({ len: 'unsigned short', filter: koffi.pointer(filter) });
  const library = koffi.load(null);
  const setFlag = library.func('prctl', 'int', ['int', 'long', 'long', 'long', 'long']);
  const setFilter = library.func('prctl', 'int', ['int', 'long', koffi.pointer(program)]);
  const refusal = SECCOMP_RET_ERRNO | constants.errno.ENOSYS;
  const instructions = [
    { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
    ...REFUSED.map((k, index) => ({ code: JUMP_IF_EQUAL, jt: REFUSED.length - index, jf: 0, k })),
    { code: RETURN, jt: 0, jf: 0, k: SECCOMP_RET_ALLOW },
    { code: RETURN, jt: 0, jf: 0, k: refusal },
  ];
  const isFlagSet = setFlag(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) === 0;
  const isFiltered =
    isFlagSet &&
    setFilter(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, { len: instructions.length, filter: instructions }) === 0;
  if (!isFiltered) throw new Error('the filter was not taken');
}

if (isMainThread) {
  refusePriorities();
  answerFirst();
  leaveBehind(process.pid);
  const worker = new Worker(new URL(import.meta.url));
  worker.once('exit', (code) => {
    process.once('exit', () => process.stdout.write(code === 0 ? 'ok\n' : 'the thread failed\n'));
  });
} else {
  workBehind();
}
