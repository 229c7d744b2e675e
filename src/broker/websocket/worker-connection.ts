/**
 * A worker's connection to a host over WebSocket.
 * Not here: matching answers with requests, connecting again (worker/).
 *
 * Invariant: a call without an answer counts as not executed only if the host closed the connection and had not read the call.
 */
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import type { Clock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError, isHostError, notExecuted } from '../../kernel/errors.js';
import { joinedParts } from '../../wire/json-edit.js';
import { readHostMessage, type WorkerMessage, writeMessage } from '../protocol/messages.js';
import { MessageConnection, type OpenConnection, type OpenConnectionOptions } from '../worker/connection.js';
import { closeError } from './close-reasons.js';
import { cancelledConnect, networkError, statusError, timeoutError } from './connect.js';
import { FrameSocket, socketOptions } from './frame-socket.js';
import { answerMs, sessionHeader } from './limits.js';

export interface WebSocketConnectionOptions {
  readonly url: string | URL;
  readonly key: string;
  readonly clock: Clock;
}

/** Longest time from the start of the connection to the welcome. */
const connectMs = 10_000;

/** The caller has checked that the key is not sent in the clear to another machine. */
export function openWebSocketConnection(options: WebSocketConnectionOptions): OpenConnection {
  const { key, clock } = options;
  const url = new URL(options.url);
  return async ({ session, heard, signal }) => {
    if (signal.aborted) throw cancelledConnect();
    const { promise, resolve, reject } = deferred<SocketConnection>();
    // A key with other characters is not one of ours, and the host refuses it.
    const authorization = `Bearer ${key.replace(/[^\x21-\x7e]/g, '?')}`;
    const headers = { authorization, [sessionHeader]: session };
    const socket = new WebSocket(url, { ...socketOptions, followRedirects: false, headers });
    const giveUp = (error: HostError) => {
      reject(error);
      socket.terminate();
    };
    const onAbort = () => giveUp(cancelledConnect());
    const cancelLimit = clock.at(clock.nowMs() + connectMs, () => giveUp(timeoutError(url)));
    signal.addEventListener('abort', onAbort, { once: true });
    socket.once('unexpected-response', (_request, response) => {
      response.destroy();
      giveUp(statusError(url, response.statusCode ?? 0, response.headers['www-authenticate']));
    });
    // The listener stays after the handshake: an error without a listener would end the process.
    socket.on('error', (cause: Error & { code?: string }) => reject(networkError(url, cause)));
    socket.once('upgrade', ({ socket: below }) => {
      socket.once('open', () => {
        const connection = new SocketConnection(socket, below, clock, heard);
        connection.admitted.then(() => resolve(connection), reject);
      });
    });
    try {
      return await promise;
    } finally {
      cancelLimit();
      signal.removeEventListener('abort', onAbort);
    }
  };
}

class SocketConnection extends MessageConnection {
  readonly #socket: FrameSocket;
  readonly #admitted = deferred();
  /** Resolves with the welcome. */
  readonly admitted = this.#admitted.promise;
  /** Why this side gave the connection up. */
  #ownError: HostError | undefined;

  constructor(socket: WebSocket, below: Duplex, clock: Clock, heard: OpenConnectionOptions['heard']) {
    super(answerMs, heard);
    this.#socket = new FrameSocket(socket, below, clock, {
      frame: (bytes) => this.#frame(bytes),
      ended: (reason, text) => this.#ended(reason, text),
    });
  }

  override send(message: WorkerMessage, sent?: () => void): boolean {
    if (!this.isClosing) this.#socket.send(joinedParts(writeMessage(message)), sent);
    return !this.isClosing;
  }

  protected override async disconnect(): Promise<void> {
    this.#socket.close('closed');
  }

  #frame(bytes: Buffer | undefined): void {
    try {
      if (bytes === undefined) throw new HostError('protocol_error', 'the broker sent a binary message');
      const message = readHostMessage(bytes);
      // The welcome, which comes first, has the name of the worker.
      if (this.worker !== '') return this.heard(message);
      if (message?.op !== 'welcome') throw noBroker();
      this.welcomed(message);
      this.#admitted.resolve();
    } catch (error) {
      this.#ownError = isHostError(error) ? error : new HostError('protocol_error', 'a message could not be read');
      this.#socket.close('bad_frame', this.#ownError.message);
    }
  }

  #ended(reason: string, text: string): void {
    // A host that goes away has answered every call that it read.
    this.isUnread = reason === 'going_away';
    const error = this.#ownError ?? closeError(reason, text);
    this.#admitted.reject(error);
    this.ended(this.isClosing ? undefined : error);
  }
}

function noBroker(): HostError {
  const hint = 'use the address that hostler up prints for workers';
  return notExecuted('protocol_error', 'the server at this address did not answer as a broker', hint);
}
