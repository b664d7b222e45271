import test from 'ava';
import { hasReasonToStop, wantsToStop } from '../../src/fuse/kernel/signals.js';

const HUP = 1;
const KILL = 9;
const USR1 = 10;
const TERM = 15;
const CHLD = 17;
const CONT = 18;
const STOP = 19;
const TSTP = 20;
const URG = 23;
const WINCH = 28;
const RT = 40;

interface Signals {
  readonly SigPnd?: readonly number[];
  readonly ShdPnd?: readonly number[];
  readonly SigBlk?: readonly number[];
  readonly SigIgn?: readonly number[];
  readonly SigCgt?: readonly number[];
}

/** The text of a /proc/<tid>/status. */
function status(signals: Signals): string {
  const line = (field: keyof Signals): string => {
    const mask = (signals[field] ?? []).reduce((bits, signal) => bits | (1n << BigInt(signal - 1)), 0n);
    return `${field}:\t${mask.toString(16).padStart(16, '0')}`;
  };
  const fields = (['SigPnd', 'ShdPnd', 'SigBlk', 'SigIgn', 'SigCgt'] as const).map(line);
  return ['Name:\tcat', 'State:\tD (disk sleep)', 'SigQ:\t1/95000', ...fields, 'CapInh:\t0', ''].join('\n');
}

const cases: readonly (readonly [string, Signals, boolean])[] = [
  ['nothing is pending', {}, false],
  ['it is being killed', { SigPnd: [KILL] }, true],
  ['its process is being killed', { ShdPnd: [KILL] }, true],
  ['a signal ends it by default', { ShdPnd: [TERM] }, true],
  ['a terminal hangs up', { ShdPnd: [HUP] }, true],
  ['a real-time signal ends it', { SigPnd: [RT] }, true],
  ['a caught signal is pending', { SigPnd: [USR1], SigCgt: [USR1] }, true],
  ['an ignored signal is pending', { ShdPnd: [TERM], SigIgn: [TERM] }, false],
  ['a blocked signal is pending', { SigPnd: [TERM], SigBlk: [TERM] }, false],
  ['a child has ended', { ShdPnd: [CHLD] }, false],
  ['a child has ended, and it catches that', { ShdPnd: [CHLD], SigCgt: [CHLD] }, false],
  ['the Go runtime preempts it', { SigPnd: [URG], SigCgt: [URG] }, false],
  ['the terminal changes its size', { ShdPnd: [WINCH], SigCgt: [WINCH] }, false],
  ['it is told to go on', { ShdPnd: [CONT] }, false],
  ['it is to be stopped', { ShdPnd: [STOP, TSTP] }, false],
  ['it catches the stop of a terminal', { ShdPnd: [TSTP], SigCgt: [TSTP] }, true],
  ['a harmless and a deadly signal are pending', { SigPnd: [URG], ShdPnd: [WINCH, TERM] }, true],
];

for (const [title, signals, expected] of cases) {
  test(`a waiting thread ${expected ? 'stops' : 'goes on'} when ${title}`, (t) => {
    t.is(hasReasonToStop(status(signals)), expected);
  });
}

test('a thread that does not exist any more wants to stop', (t) => {
  t.true(wantsToStop(0x7fff_ffff));
});

test('a thread of another pid namespace wants to stop at its first signal', (t) => {
  t.true(wantsToStop(0));
});

test('a thread that nobody has signalled goes on', (t) => {
  t.false(wantsToStop(process.ppid));
});

test('text that is no status shows no reason to stop', (t) => {
  t.false(hasReasonToStop(''));
  t.false(hasReasonToStop('SigPnd:\tnothing\n'));
});
