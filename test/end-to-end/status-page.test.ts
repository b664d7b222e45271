/** The status page of a real daemon in a real browser. */

import anyTest, { type ExecutionContext } from 'ava';
import type { Page } from 'puppeteer-core';
import type { Coverage } from '../../src/daemon/coverage.js';
import { hasBrowser, openBrowser, type WatchedPage } from '../support/browser.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const test = hasBrowser ? anyTest.serial : anyTest.serial.skip;

/** As hostile as a name in a task map may be. */
const HOSTILE_VARIANT = `<img src=x onerror="document.title='taken'">`;
const HOSTILE_TASK = `"><script>document.title='taken'<`;

async function startPool(t: ExecutionContext): Promise<MountedPool> {
  const { files, tasks } = smallPool(5);
  const { t4: hostile = '', ...plain } = tasks['v'] ?? {};
  const variants = { v: plain, [HOSTILE_VARIANT]: { [HOSTILE_TASK]: hostile, lost: 'images/lost.sif' } };
  return MountedPool.start(t, { files, tasks: variants, args: ['--metrics-port', '0'] });
}

async function urlOf(pool: MountedPool): Promise<string> {
  return (await pool.status()).metricsUrl ?? '';
}

/** What a script in the page makes of it. Handed over as text: this side knows no DOM. */
async function inPage<Value>({ page }: { readonly page: Page }, script: string): Promise<Value> {
  return (await page.evaluate(script)) as Value;
}

function textOf(watched: WatchedPage, selector: string): Promise<string> {
  return inPage(watched, `document.querySelector(${JSON.stringify(selector)}).innerText`);
}

async function look(t: ExecutionContext, pool: MountedPool, args: readonly string[] = []): Promise<WatchedPage> {
  const watched = await openBrowser(t, args);
  await watched.page.goto(await urlOf(pool));
  await shown(watched);
  return watched;
}

function shown(watched: WatchedPage): Promise<true> {
  return eventually('the page is shown', async () => {
    return (await inPage<boolean>(watched, `!document.querySelector('main').hidden`)) || undefined;
  });
}

interface Bar {
  readonly variant: string;
  readonly ready: number;
  readonly refused: number;
}

/** The shares of each variant's bar, as they are drawn. */
function bars(watched: WatchedPage): Promise<readonly Bar[]> {
  return inPage(
    watched,
    `[...document.querySelectorAll('.variant')].map((row) => {
      const bar = row.querySelector('.bar');
      const share = (part) => part.getBoundingClientRect().width / bar.getBoundingClientRect().width;
      const [ready, refused] = [...bar.children].map(share);
      return { variant: row.querySelector('.name').innerText, ready, refused };
    })`,
  );
}

test('the bars show what coverage counts, and the page goes on by itself', async (t) => {
  const pool = await startPool(t);
  pool.hub.fault({ server: 'cdn', path: 'images/3.sif', fault: { kind: 'corrupt', atByte: 9 }, requests: 'every' });
  for (const task of ['t0', 't1', 't3']) await pool.run('cat', [pool.path(`v/${task}.sif`)]);
  const coverage = JSON.parse((await pool.tmaxfs(['coverage', pool.mountpoint, '--json'])).stdout) as Coverage;
  const watched = await look(t, pool);
  const expected = coverage.variants.map(({ variant, blobs, readyBlobs, quarantinedBlobs }) => {
    return { variant, ready: readyBlobs / blobs, refused: quarantinedBlobs / blobs };
  });
  t.deepEqual(
    expected.map(({ ready, refused }) => [ready, refused]),
    [
      [0.5, 0.25],
      [0, 0],
    ],
  );
  const isAsExpected = (drawn: readonly Bar[]) =>
    drawn.length === expected.length &&
    drawn.every(({ variant, ready, refused }, index) => {
      const { variant: name, ready: readyShare = 0, refused: refusedShare = 0 } = expected[index] ?? {};
      return variant === name && Math.abs(ready - readyShare) < 0.01 && Math.abs(refused - refusedShare) < 0.01;
    });
  await eventually('the bars have got there', async () => isAsExpected(await bars(watched)) || undefined);
  t.regex(await textOf(watched, '#variants'), /4 tasks · 2 of 4 images on disk and proven/);
  t.regex(await textOf(watched, '#quarantine'), /v\/t3[\s\S]*sha256-mismatch[\s\S]*images\/3\.sif/);
  t.regex(await textOf(watched, '#waited'), /3\s.*ms|3\s.* s/);

  pool.hub.fault({ server: 'cdn', path: 'images/2.sif', fault: { kind: 'stall' }, requests: 'every' });
  const waiting = pool.spawn(['cat', pool.path('v/t2.sif')]);
  await eventually('the fetch is there, with who waits', async () => {
    return /v\/t2[\s\S]*1 waiting: \d+ \(cat\)/.test(await textOf(watched, '#fetches')) || undefined;
  });
  waiting.kill('SIGKILL');
  await waiting;
  t.deepEqual(watched.complaints, []);
});

test('a hostile name is text, and the page runs nothing but its own script', async (t) => {
  const pool = await startPool(t);
  pool.hub.fault({ server: 'cdn', path: 'images/4.sif', fault: { kind: 'corrupt', atByte: 9 }, requests: 'every' });
  await pool.run('cat', [pool.path(HOSTILE_VARIANT, `${HOSTILE_TASK}.sif`)]);
  const watched = await look(t, pool);
  t.true((await textOf(watched, '#variants')).includes(HOSTILE_VARIANT));
  t.true((await textOf(watched, '#quarantine')).includes(`${HOSTILE_VARIANT}/${HOSTILE_TASK}`));
  t.is(await watched.page.title(), `${pool.mountpoint} – tmaxfs`);
  t.is(await inPage(watched, `document.querySelectorAll('img, iframe, script:not(html > body > script)').length`), 0);
  t.deepEqual(watched.complaints, []);

  // Were a name ever set as markup or as a script, the policy would not have it.
  for (const attempt of [
    `document.body.innerHTML = ${JSON.stringify(HOSTILE_VARIANT)}`,
    `document.body.setAttribute('onclick', "document.title = 'taken'")`,
    `document.body.append(Object.assign(document.createElement('script'), { text: "document.title = 'taken'" }))`,
  ]) {
    const outcome = `(() => { try { ${attempt}; } catch (error) { return error.name; } })()`;
    t.is(await inPage(watched, outcome), 'TypeError', attempt);
  }
  t.true(watched.complaints.length > 0 && watched.complaints.every((words) => /Trusted/.test(words)));
});

test('a daemon that goes is said to be gone; when it is back, the page goes on', async (t) => {
  const { files, tasks } = smallPool(1);
  const first = await MountedPool.start(t, { files, tasks, args: ['--metrics-port', '0'] });
  const port = new URL(await urlOf(first)).port;
  const watched = await look(t, first);
  const { pid } = await first.status();
  await first.tmaxfs(['unmount', first.mountpoint]);
  await eventually('it is said', async () => (await textOf(watched, '#state')) === 'gone' || undefined);
  t.regex(await textOf(watched, '#banner'), /^The daemon is gone, or does not answer, since \d\d:\d\d:\d\d/);
  t.true((await textOf(watched, '#daemon')).includes(`pid ${pid} `), 'what was last known is still shown');
  const second = await MountedPool.start(t, { files, tasks, args: ['--metrics-port', port] });
  const next = (await second.status()).pid;
  await eventually('it goes on', async () => (await textOf(watched, '#daemon')).includes(`pid ${next} `) || undefined);
  t.true(await inPage<boolean>(watched, `document.querySelector('#banner').hidden`));
  t.regex(await textOf(watched, '#state'), /^as of/);
});

test('a site of another name or origin gets nothing, in a browser that is led here', async (t) => {
  const pool = await startPool(t);
  const url = await urlOf(pool);
  const { port } = new URL(url);
  const { page } = await openBrowser(t, ['--host-resolver-rules=MAP rebound.example 127.0.0.1']);
  t.is((await page.goto(`http://rebound.example:${port}/`))?.status(), 403);
  t.is((await page.goto(url))?.status(), 200);
  // A page of another origin: the Hub of the test.
  await page.goto(`${pool.hub.endpoint}/`);
  const statuses: number[] = [];
  page.on('response', (response) => {
    if (response.url().startsWith(url)) statuses.push(response.status());
  });
  const asked = (options: string) =>
    inPage<string>(
      { page },
      `fetch('${url}summary.json', ${options}).then((answer) => answer.type, (error) => error.name)`,
    );
  t.is(await asked('{}'), 'TypeError');
  t.not(await asked(`{ mode: 'no-cors' }`), 'basic');
  t.deepEqual(
    statuses.filter((status) => status !== 403),
    [],
    'nothing was answered',
  );
});

test('the page can be read in light and in dark, and is no wider than a phone', async (t) => {
  const pool = await startPool(t);
  await pool.run('cat', [pool.path('v/t0.sif')]);
  const watched = await look(t, pool);
  const { page } = watched;
  const grounds = new Set<string>();
  for (const value of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
    grounds.add(await inPage(watched, `getComputedStyle(document.documentElement).backgroundColor`));
    for (const selector of ['h1', 'h2', '.note', '.big', '#variants .name', '.bad', '.warn', '#hits td']) {
      const contrast = await inPage<number>(watched, contrastOf(selector));
      // As WCAG 2.2 wants it for text (1.4.3).
      t.true(contrast >= 4.5, `${selector}, ${value}: ${contrast}`);
    }
  }
  t.is(grounds.size, 2);
  await page.setViewport({ width: 360, height: 700 });
  t.true(await inPage<boolean>(watched, `document.documentElement.scrollWidth <= 360`));
  t.deepEqual(watched.complaints, []);
});

/** Of the text of an element, made where there is none, against what is behind it. */
function contrastOf(selector: string): string {
  return `(() => {
    const made = document.createElement('span');
    made.className = ${JSON.stringify(selector.replace('.', ''))};
    const element = document.querySelector(${JSON.stringify(selector)}) ?? document.querySelector('.card').appendChild(made);
    const luminance = (color) => {
      const [r, g, b] = color.match(/\\d+/g).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let behind = element;
    while (behind && getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind ?? document.documentElement).backgroundColor].map(luminance);
    made.remove();
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  })()`;
}
