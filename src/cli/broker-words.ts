/** What happens at the broker, in one line each for the log; undefined where nothing need be said. */
import type { BrokerEvent } from '../broker/embedded/events.js';
import type { ServiceEvent } from '../broker/service/service-events.js';
import type { LogLevel } from '../config/listen-settings.js';
import { isHostError } from '../kernel/errors.js';
import { span } from './text-table.js';

type Line = readonly [LogLevel, string];

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
      return ['error', `broker: ${isHostError(event.error) ? event.error.message : 'something went wrong'}`];
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
