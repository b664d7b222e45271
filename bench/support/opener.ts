/** Programs that open and close files without a pause. Python costs about 2 us an open, the same for all contestants. */

import { execa } from 'execa';
import * as v from 'valibot';

const PROGRAM = `
import json, os, sys, time
path, openers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def work():
    took = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        os.close(os.open(path, os.O_RDONLY))
        took.append(time.perf_counter() - start)
    return took
if openers == 1:
    took = sorted(work())
    print(json.dumps({'count': len(took), 'medianSeconds': took[len(took) // 2]}))
else:
    reading, writing = os.pipe()
    for _ in range(openers):
        if os.fork() == 0:
            os.write(writing, b'%d\\n' % len(work()))
            os._exit(0)
    os.close(writing)
    count = sum(int(line) for line in os.fdopen(reading))
    print(json.dumps({'count': count, 'medianSeconds': 0}))`;

const Report = v.object({ count: v.number(), medianSeconds: v.number() });

/** Opens and closes `path` for so long; the median is of one opener alone. */
export async function openAndClose(
  path: string,
  openers: number,
  seconds: number,
): Promise<v.InferOutput<typeof Report>> {
  const { stdout } = await execa('python3', ['-c', PROGRAM, path, String(openers), String(seconds)]);
  return v.parse(Report, JSON.parse(stdout));
}
