/** Redacts the newest values of one secret, not only the current one: a text with an older value may still arrive. */

/** `know` adds a value to redact. `forget` removes one owner; a value with another owner stays redacted. */
export interface SecretSink {
  know(value: string, owner?: object): void;
  forget(value: string, owner?: object): void;
}

export class NewestSecrets {
  readonly #sink: SecretSink;
  readonly #max: number;
  #values: string[] = [];

  constructor(sink: SecretSink, max: number) {
    this.#sink = sink;
    this.#max = max;
  }

  add(value: string): void {
    if (this.#values.at(-1) === value) return;
    this.#sink.know(value, this);
    this.#values = [...this.#values.filter((other) => other !== value), value];
    for (const old of this.#values.splice(0, this.#values.length - this.#max)) this.#sink.forget(old, this);
  }
}
