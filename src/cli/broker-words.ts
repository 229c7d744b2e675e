/**
 * What happens at the broker, in one line each for the log; undefined where nothing need be said.
 * Not here: events of servers (event-line.ts), where lines go, which also neutralises them (stderr-log.ts).
 */
import type { BrokerEvent, TurnedAway } from '../broker/embedded/events.js';
import type { ServiceEvent } from '../broker/service/service-events.js';
import type { LogLevel } from '../config/listen-settings.js';
import type { Clock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import { span } from './text-table.js';

type Line = readonly [LogLevel, string];

const turnedAwayMs = 10_000;

/**
 * As `brokerLine`, but a stranger who knocks on and on does not fill the log: one line for each reason and ten seconds, with how
 * many there were since the one before. All of them are counted in the status.
 */
export function brokerLines(clock: Clock): (event: BrokerEvent | ServiceEvent) => Line | undefined {
  const said = new Map<TurnedAway, { readonly atMs: number; unsaid: number }>();
  return (event) => {
    const line = brokerLine(event);
    if (event.kind !== 'turned_away' || !line) return line;
    const last = said.get(event.reason);
    if (last && clock.nowMs() - last.atMs < turnedAwayMs) {
      last.unsaid++;
      return undefined;
    }
    said.set(event.reason, { atMs: clock.nowMs(), unsaid: 0 });
    const [level, text] = line;
    return last && last.unsaid > 0 ? [level, `${text}, and ${last.unsaid} before`] : line;
  };
}

export function brokerLine(event: BrokerEvent | ServiceEvent): Line | undefined {
  switch (event.kind) {
    case 'connected':
      return 'who' in event ? ['info', `broker: ${event.name} is connected`] : undefined;
    case 'disconnected':
      if ('who' in event) return ['info', `broker: ${event.name} is gone (${event.reason})`];
      return event.retryInMs === 0
        ? undefined
        : ['warn', `broker: not connected${reasonOf(event.error)}; next try in ${span(event.retryInMs)}`];
    case 'turned_away':
      return ['warn', `broker: somebody was turned away (${event.reason})`];
    case 'denied':
      return ['warn', `broker: ${event.from.mailbox} may not call ${event.server ?? '*'}/${event.tool}`];
    case 'unlisted_role':
      return ['warn', `broker: worker '${event.from.mailbox}' is refused everything: ${wholeOf(event.error)}`];
    case 'undeliverable':
      return ['warn', `broker: the reply to ${event.from.mailbox} is kept back${reasonOf(event.error)}`];
    case 'mailbox_full':
      return ['warn', `broker: the mailbox ${event.mailbox} is full (${event.count} messages)`];
    case 'dead_letter':
      return ['error', `broker: a message of ${event.from.mailbox} is a dead letter: ${event.reasons.join('; ')}`];
    case 'dropped':
      return ['warn', `broker: a message to ${event.mailbox} was set aside (${event.reason})`];
    case 'unreadable':
      return ['warn', `broker: a message to ${event.mailbox} was set aside (${event.kind})`];
    case 'rekeyed':
      return event.cut === 0 ? undefined : ['info', `broker: ${event.cut} cut off, their keys do not count any more`];
    case 'problem':
      return ['error', `broker: ${isHostError(event.error) ? wholeOf(event.error) : 'something went wrong'}`];
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

const wholeOf = ({ message, hint }: HostError): string => (hint === undefined ? message : `${message}; ${hint}`);
