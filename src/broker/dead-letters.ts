/** Messages that were handed out too often, as operators see and settle them, whichever engine keeps them. */
export interface DeadLetters {
  list(): Promise<readonly { readonly seq: number; readonly id: string; readonly reasons: readonly string[] }[]>;
  /** Puts it back into its mailbox, once. Rejects when it may have run and nobody remembers; `isForced`: it may run again. */
  revive(seq: number, options?: ReviveOptions): Promise<boolean>;
  drop(seq: number): Promise<boolean>;
}

export interface ReviveOptions {
  readonly isForced?: boolean;
}
