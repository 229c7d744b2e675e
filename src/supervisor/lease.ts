/**
 * Holds one server open. What a call takes for its duration and what a binding takes for as long as it lives are the same
 * thing: the server may rest when the last of them is given back.
 * Invariant: a lease counts once, and giving it back twice is as good as once.
 */
export type LeaseKind = 'binding' | 'call';

export class Lease implements Disposable, AsyncDisposable {
  readonly server: string;
  readonly kind: LeaseKind;
  #giveBack: (() => void) | undefined;

  constructor(server: string, kind: LeaseKind, giveBack: () => void) {
    this.server = server;
    this.kind = kind;
    this.#giveBack = giveBack;
  }

  get isReleased(): boolean {
    return this.#giveBack === undefined;
  }

  release(): void {
    const giveBack = this.#giveBack;
    this.#giveBack = undefined;
    giveBack?.();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
  }
}
