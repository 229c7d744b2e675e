/**
 * Whether servers whose tools were never seen are started once in the background to learn them: by `learnAtBoot`, or because a
 * gateway or broker lists tools without starting anything.
 * Not here: starting them (discovery.ts), waiting for them (first-sight.ts).
 */
import type { Sightings } from './first-sight.js';
import type { HostParts } from './host-parts.js';

export class ToolLearning {
  readonly #parts: Pick<HostParts, 'discovery' | 'firstSight'>;
  readonly #setting: boolean | undefined;
  #isOn: boolean;
  #hasBegun = false;

  constructor(parts: Pick<HostParts, 'discovery' | 'firstSight'>, learnAtBoot: boolean | undefined) {
    this.#parts = parts;
    this.#setting = learnAtBoot;
    this.#isOn = learnAtBoot ?? false;
  }

  /** The servers of the configuration are declared. */
  begin(): void {
    this.#hasBegun = true;
    this.#parts.firstSight.begin(this.#parts.discovery.seeStarting(), this.learnUnseen());
  }

  /** `learnAtBoot: false` keeps it off. */
  turnOn(): void {
    if (this.#isOn || this.#setting === false) return;
    this.#isOn = true;
    if (this.#hasBegun) this.#parts.firstSight.begin(this.learnUnseen());
  }

  learnUnseen(): Sightings {
    return this.#isOn ? this.#parts.discovery.learnUnseen() : new Map();
  }
}
