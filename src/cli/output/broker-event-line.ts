/**
 * Formats events of the broker as log lines; undefined for events that are not logged.
 * Not here: events of servers (event-line.ts), neutralising (stderr-log.ts).
 */
import type { BrokerEvent, TurnedAway } from '../../broker/broker-events.js';
import type { LogLevel } from '../../config/listen-settings.js';
import type { Clock } from '../../kernel/clock.js';
import { type HostError, isHostError } from '../../kernel/errors.js';

type Line = readonly [LogLevel, string];

const turnedAwayMs = 10_000;

/** Logs at most one refused connection per reason in ten seconds. The next line has the number of suppressed lines. */
export function brokerLines(clock: Clock): (event: BrokerEvent) => Line | undefined {
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

function brokerLine(event: BrokerEvent): Line | undefined {
  switch (event.kind) {
    case 'connected':
      return ['info', `broker: worker '${event.worker}' is connected${event.isAgain ? ' again' : ''}`];
    case 'disconnected':
      return ['info', `broker: worker '${event.worker}' is disconnected (${event.reason})`];
    case 'turned_away':
      return ['warn', `broker: a connection was refused (${refusals[event.reason]})`];
    case 'nats_lost':
      return ['warn', `broker: the connection to NATS is lost: ${textWithHint(event.error)}`];
    case 'nats_restored':
      return ['info', 'broker: connected to NATS again'];
    case 'denied':
      return ['warn', `broker: worker '${event.worker}' may not call ${event.server ?? '*'}/${event.tool}`];
    case 'unlisted_role':
      return ['warn', `broker: worker '${event.worker}' may use nothing: ${textWithHint(event.error)}`];
    case 'uncertain':
      return ['warn', `broker: call ${event.key} of worker '${event.worker}' may have run: its outcome is not known`];
    case 'rekeyed':
      return event.closed === 0
        ? undefined
        : ['info', `broker: closed ${event.closed} connections whose keys are no longer valid`];
    case 'problem':
      return ['error', `broker: ${isHostError(event.error) ? textWithHint(event.error) : 'internal error'}`];
    default:
      event satisfies never;
      return undefined;
  }
}

const refusals: Readonly<Record<TurnedAway, string>> = {
  bad_session: 'its session is missing or not valid',
  unknown_key: 'its key is unknown, expired or revoked',
  upgrade_timeout: 'it sent no valid request in time',
  too_many_connections: 'too many connections',
  wrong_host: 'its host name is not in broker.listen.allowedHosts',
  wrong_origin: 'its origin is not in broker.listen.allowedOrigins',
  wrong_path: 'its path is not that of the broker',
};

const textWithHint = ({ message, hint }: HostError): string => (hint === undefined ? message : `${message}; ${hint}`);
