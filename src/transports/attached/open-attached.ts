/**
 * Opens the channel of one start, over the attached object or over a new one from the factory, within the start deadline.
 * Invariant: an object that the factory returns too late is closed, unless another connection uses it.
 */
import type { AttachedServerSpec } from '../../config/server-spec.js';
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import { HostError } from '../../kernel/errors.js';
import { type Attachable, claim } from './attachable.js';
import { AttachedChannel, type AttachedDeps } from './attached-channel.js';
import { closeFailed, type ErrorContext, factoryFailed, notAttachable } from './attached-errors.js';

export async function openAttached(
  spec: AttachedServerSpec,
  deps: AttachedDeps,
  limits: { readonly deadlineAtMs: number; readonly signal: CancelSignal | undefined },
): Promise<AttachedChannel> {
  const { name } = spec;
  const object = spec.hasFactory ? await fromFactory(spec, deps, limits.deadlineAtMs, limits.signal) : spec.take();
  const problem = claim(object);
  if (problem !== undefined) throw notAttachable(name, problem);
  return new AttachedChannel(name, object as Attachable, deps);
}

function fromFactory(
  { name: server, take }: AttachedServerSpec,
  { clock, cleanText, onProblem }: AttachedDeps,
  deadlineAtMs: number,
  signal: CancelSignal | undefined,
): Promise<unknown> {
  const context: ErrorContext = { server, cleanText, now: () => clock.date() };
  return new Promise((resolve, reject) => {
    let isOver = false;
    const end = () => {
      isOver = true;
      cancelTimer();
      signal?.removeEventListener('abort', giveUp);
    };
    const giveUp = () => {
      end();
      reject(new HostError('cancelled', `the start of server '${server}' was cancelled`, facts(server)));
    };
    const cancelTimer = clock.at(deadlineAtMs, () => {
      end();
      reject(
        new HostError('timeout', `the factory of server '${server}' did not return in time`, {
          ...facts(server),
          reason: 'start_timeout',
        }),
      );
    });
    if (signal?.aborted) return giveUp();
    signal?.addEventListener('abort', giveUp, { once: true });
    // Called inside a promise, so that a synchronous throw becomes a rejection.
    new Promise((settle) => settle(take())).then(
      (object) => {
        if (isOver) return closeLate(context, object, onProblem);
        end();
        resolve(object);
      },
      (error: unknown) => {
        if (isOver) return;
        end();
        reject(factoryFailed(context, error));
      },
    );
  });
}

const facts = (server: string) => ({ server, execution: 'not_executed' }) as const;

function closeLate(context: ErrorContext, object: unknown, onProblem: (error: unknown) => void): void {
  if (claim(object) !== undefined) return;
  new Promise((settle) => settle((object as Attachable).close())).catch((error: unknown) =>
    onProblem(closeFailed(context, error)),
  );
}
