/** Whoever is handed the mail of a mailbox, as the mailbox sees it. */
export interface Subscriber {
  readonly epoch: string;
  /** Who it is, over all its connections; undefined: it does not say. */
  readonly holder: string | undefined;
  readonly window: number;
  /** Of one sender in it. */
  readonly windowOfOne: number;
  /** Whether so many bytes may be sent to it now. When not, it asks for more by itself. */
  canTake(bytes: number): boolean;
  send(frame: Buffer): void;
}
