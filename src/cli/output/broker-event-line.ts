/**
 * Formats events of the broker as log lines; undefined for events that are not logged.
 * Not here: events of servers (event-line.ts), neutralising (stderr-log.ts).
 */
import type { BrokerEvent, TurnedAway } from '../../broker/embedded/events.js';
import type { ServiceEvent } from '../../broker/service/service-events.js';
import type { LogLevel } from '../../config/listen-settings.js';
import type { Clock } from '../../kernel/clock.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { formatDuration } from './print.js';

type Line = readonly [LogLevel, string];

const turnedAwayMs = 10_000;

/** Logs at most one refused connection per reason in ten seconds. The next line has the number of suppressed lines. */
export function brokerLines(clock: Clock): (event: BrokerEvent | ServiceEvent) => Line | undefined {
  const logged = new Map<TurnedAway, { readonly atMs: number; suppressed: number }>();
  return (event) => {
    const line = brokerLine(event);
    if (event.kind !== 'turned_away' || !line) return line;
    const last = logged.get(event.reason);
    if (last && clock.nowMs() - last.atMs < turnedAwayMs) {
      last.suppressed++;
      return undefined;
    }
    logged.set(event.reason, { atMs: clock.nowMs(), suppressed: 0 });
    const [level, text] = line;
    return last && last.suppressed > 0 ? [level, `${text}, and ${last.suppressed} more before`] : line;
  };
}

function brokerLine(event: BrokerEvent | ServiceEvent): Line | undefined {
  switch (event.kind) {
    case 'connected':
      return 'who' in event ? ['info', `broker: ${event.name} is connected`] : undefined;
    case 'disconnected':
      if ('who' in event) return ['info', `broker: ${event.name} is disconnected (${event.reason})`];
      return event.retryInMs === 0
        ? undefined
        : ['warn', `broker: not connected${reasonOf(event.error)}; next try in ${formatDuration(event.retryInMs)}`];
    case 'turned_away':
      return ['warn', `broker: a connection was refused (${event.reason})`];
    case 'denied':
      return ['warn', `broker: ${event.from.mailbox} may not call ${event.server ?? '*'}/${event.tool}`];
    case 'unlisted_role':
      return ['warn', `broker: worker '${event.from.mailbox}' is refused everything: ${textWithHint(event.error)}`];
    case 'undeliverable':
      return ['warn', `broker: the reply to ${event.from.mailbox} cannot be delivered${reasonOf(event.error)}`];
    case 'mailbox_full':
      return ['warn', `broker: the mailbox ${event.mailbox} is full (${event.count} messages)`];
    case 'dead_letter':
      return ['error', `broker: a message of ${event.from.mailbox} is a dead letter: ${event.reasons.join('; ')}`];
    case 'dropped':
      return ['warn', `broker: a message to ${event.mailbox} was dropped (${event.reason})`];
    case 'unreadable':
      return ['warn', `broker: a message to ${event.mailbox} was dropped (${event.kind})`];
    case 'rekeyed':
      return event.cut === 0
        ? undefined
        : ['info', `broker: closed ${event.cut} connections whose keys are no longer valid`];
    case 'problem':
      return ['error', `broker: ${isHostError(event.error) ? textWithHint(event.error) : 'internal error'}`];
    case 'replaced':
    case 'fenced':
    case 'redelivered':
    case 'repeated':
    case 'expired':
      return ['debug', `broker: ${event.kind}`];
    default:
      event satisfies never;
      return undefined;
  }
}

const reasonOf = (error: { readonly message: string } | undefined): string => (error ? `: ${error.message}` : '');

const textWithHint = ({ message, hint }: HostError): string => (hint === undefined ? message : `${message}; ${hint}`);
