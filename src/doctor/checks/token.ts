/** Where the token comes from, and whether the Hub takes it. The token itself is never shown. */

import * as v from 'valibot';
import { wordsOf } from '../../errors.js';
import { endpointText } from '../../sources/hub-settings.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import { HubSession } from '../hub-session.js';
import type { Machine } from '../machine.js';

const whoamiShape = v.object({ name: v.string() });

export async function token(machine: Machine, signal: AbortSignal): Promise<readonly Remark[]> {
  const { settings, environment } = machine;
  let session: HubSession | undefined;
  try {
    session = new HubSession(machine, signal);
    const value = await session.token();
    const place = placeOf(machine);
    if (value === undefined) return [none(machine)];
    if (settings.offline) return [ok(`a token from ${place}; the Hub was not asked (offline)`)];
    const { reply, body } = await session.get(new URL(`${endpointText(session.endpoint)}/api/whoami-v2`), 'api');
    if (reply.status === 200) {
      const name = v.safeParse(whoamiShape, parseJson(body));
      return [ok(`the token from ${place} is taken${name.success ? `: ${name.output.name}` : ''}`)];
    }
    if (reply.status === 401 || reply.status === 403) {
      const why = 'every request carries it, so that even public images are refused (EACCES)';
      const remedy =
        (environment['HF_TOKEN'] ?? environment['HUGGING_FACE_HUB_TOKEN'])
          ? 'set HF_TOKEN to a valid token, or unset it'
          : 'log in anew (hf auth login), or remove that file';
      return [
        error(`the token from ${place} is refused (${reply.status}): expired, revoked, or mistyped`, why, remedy),
      ];
    }
    return [
      note(
        `a token from ${place}; ${session.endpoint.origin} does not tell whose (${reply.status})`,
        'a mirror may not know that request',
      ),
    ];
  } catch (thrown) {
    return [
      warning(
        `whether the token is taken is not known: ${wordsOf(thrown)}`,
        'without an answer nothing can be said of it',
        null,
      ),
    ];
  } finally {
    await session?.close();
  }
}

function none({ settings }: Machine): Remark {
  const looked = settings.token.file === undefined ? 'HF_TOKEN' : `HF_TOKEN, ${settings.token.file}`;
  const why = 'a public repository needs none, but all of an address then share 3,000 files in 5 minutes';
  return note(`no token (${looked})`, why, 'export HF_TOKEN=..., or hf auth login');
}

function placeOf({ settings, environment }: Machine): string {
  if (settings.token.value === undefined) return settings.token.file ?? 'nowhere';
  return environment['HF_TOKEN']?.trim() ? 'HF_TOKEN' : 'HUGGING_FACE_HUB_TOKEN';
}

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}
