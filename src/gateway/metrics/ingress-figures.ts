/** What ingresses count by themselves, for metrics. */
export interface IngressFigures {
  /** Sessions that are open now. */
  readonly legacySessions: number;
  /** Streams of `subscriptions/listen` that are open now: the modern era has no sessions. */
  readonly modernStreams: number;
  /** HTTP requests that were answered, by the first digit of their status: 1 to 5. */
  readonly httpAnswers: Readonly<Record<number, number>>;
}

/** The first digits of a status of HTTP. */
export const statusClasses = [1, 2, 3, 4, 5];

/** Of several ingresses together. */
export function joinFigures(all: readonly IngressFigures[]): IngressFigures {
  const httpAnswers: Record<number, number> = {};
  for (const each of all) {
    for (const digit of statusClasses) httpAnswers[digit] = (httpAnswers[digit] ?? 0) + (each.httpAnswers[digit] ?? 0);
  }
  return {
    legacySessions: all.reduce((sum, { legacySessions }) => sum + legacySessions, 0),
    modernStreams: all.reduce((sum, { modernStreams }) => sum + modernStreams, 0),
    httpAnswers,
  };
}
