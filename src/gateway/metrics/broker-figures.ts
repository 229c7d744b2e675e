/** What a broker beside the gateway counts, for metrics. The gateway knows no more of it. */
export interface BrokerFigures {
  /** 1 while there is a link to the broker. */
  readonly isConnected: boolean;
  readonly callsRunning: number;
  readonly callsWaiting: number;
  /** Since the start. */
  readonly calls: number;
  /** Calls that came again and were not run again. */
  readonly repeated: number;
  readonly expired: number;
  readonly denied: number;
  /** Of a broker in this process; undefined when it is elsewhere. */
  readonly inside:
    | {
        readonly connections: number;
        readonly redeliveries: number;
        readonly deadLetters: number;
        readonly mailboxes: readonly { readonly mailbox: string; readonly count: number }[];
      }
    | undefined;
}
