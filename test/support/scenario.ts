/**
 * A scenario: what goes wrong while one image is opened through the mount, and how that has to end. One file of
 * test/scenarios each, named by its behaviour.
 */

import { readdirSync, readFileSync } from 'node:fs';
import * as v from 'valibot';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { packagePath } from './paths.js';

const count = v.pipe(v.number(), v.integer(), v.minValue(0));

const faultShape = v.object({
  server: v.picklist(['hub', 'cdn']),
  /** Which requests for this image at this server fail, counted from 1. */
  requests: v.union([v.array(count), v.literal('every')]),
  fault: v.custom<Fault>((value) => typeof value === 'object' && value !== null && 'kind' in value),
});

const scenarioShape = v.strictObject({
  behaviour: v.string(),
  /** Further words of `tmaxfs mount`; such a scenario has a mount of its own. */
  mount: v.optional(v.array(v.string()), []),
  /** Before the open, the branch moves to a commit without the image. */
  mainMoves: v.optional(v.boolean(), false),
  faults: v.array(faultShape),
  /** "right": byte for byte; else the errno of the open. */
  expect: v.string(),
  /** From the open to its end, on a machine with other things to do. */
  withinSeconds: v.number(),
  /** How many requests the servers must have seen for the image, no more and no less. */
  requests: v.optional(v.object({ hub: v.optional(count), cdn: v.optional(count) }), {}),
});

export interface Scenario extends v.InferOutput<typeof scenarioShape> {
  /** Of its file, without ".json". */
  readonly name: string;
}

/** Every scenario, by name. */
export function readScenarios(): Scenario[] {
  const folder = packagePath('test', 'scenarios');
  return readdirSync(folder)
    .sort()
    .map((file) => {
      const json: unknown = JSON.parse(readFileSync(`${folder}/${file}`, 'utf8'));
      return { name: file.replace(/\.json$/, ''), ...v.parse(scenarioShape, json) };
    });
}
