/**
 * The bounds of the embedded broker. Each queue, table, buffer and wait in this folder takes its bound from here.
 */
import { messageBytesMax } from '../ports.js';

const KiB = 1024;
const MiB = 1024 * KiB;

/** One frame on the wire, in either direction. */
export const frameBytesMax = messageBytesMax;
/** Of a frame besides its body: the same body goes out in another frame than it came in. */
const envelopeBytesMax = 4 * KiB;
export const bodyBytesMax = frameBytesMax - envelopeBytesMax;
/** Of a connection before it is known whose it is. */
export const helloBytesMax = 64 * KiB;
/** Pieces of one frame. Our clients send a frame whole, and each piece keeps all that came with it in memory. */
export const fragmentsMax = 64;
/** What one frame may come in from the network: 4 MiB in the smallest packets there are. */
export const chunksMax = 16 * KiB;
export const keyCharsMax = 1_024;
export const reasonCharsMax = 256;

export interface BrokerLimits {
  readonly connections: number;
  /** Of those, before their hello. */
  readonly strangers: number;
  /** Of those, with one key. */
  readonly connectionsOfKey: number;
  /** From the connection to a hello. */
  readonly helloMs: number;
  readonly mailboxMessages: number;
  readonly mailboxBytes: number;
  /** Handed out to one connection and not acknowledged. */
  readonly window: number;
  readonly hostWindow: number;
  /** Of one sender in the window of a host: what one fills with slow calls is not the others' too. */
  readonly hostWindowOfOne: number;
  /** Waiting to be read by one connection; past it nothing more is sent to it, and nothing more is read from it. */
  readonly outboundBytes: number;
  /** How long a connection may stay there before it is cut. */
  readonly slowMs: number;
  /** Frames of one mailbox in a second, over all its connections, on average and at once. What comes faster waits. Undefined: as fast as it can. */
  readonly rate: { readonly perSecond: number; readonly burst: number } | undefined;
  /** Pings and pongs of one connection, whosever it is. Who sends more is cut. */
  readonly controls: { readonly perSecond: number; readonly burst: number };
  /** Words of one connection about what it does not hold. Who says more is cut. */
  readonly fences: { readonly perSecond: number; readonly burst: number };
  /** Of one connection on their way to the disk; past it nothing more is read from it. */
  readonly arriving: number;
  readonly arrivingBytes: number;
  /** News on their way to one connection; more are left out. */
  readonly tells: number;
  /** What was handed out comes again when its holder was silent for so long. */
  readonly leaseMs: number;
  readonly deliveries: number;
  readonly redeliverMs: { readonly first: number; readonly max: number };
  /** Past its deadline (a request) or its sending (a reply), after which nobody can want it. */
  readonly staleMs: number;
  /** Past its deadline nobody waits for a request; where there is no host to say so, and no room, it goes. */
  readonly expiredMs: number;
  readonly pingMs: number;
  readonly pongMs: number;
  /** Bodies kept in memory although they are on disk, all mailboxes together and one alone. */
  readonly keptBytes: number;
  readonly keptBytesOfOne: number;
  /** What is read from the disk at a time. */
  readonly page: { readonly count: number; readonly bytes: number };
}

export const brokerLimits: BrokerLimits = {
  connections: 4_096,
  strangers: 256,
  connectionsOfKey: 8,
  helloMs: 5_000,
  mailboxMessages: 10_000,
  mailboxBytes: 64 * MiB,
  window: 64,
  hostWindow: 256,
  hostWindowOfOne: 96,
  outboundBytes: 4 * MiB,
  slowMs: 10_000,
  rate: { perSecond: 500, burst: 1_000 },
  controls: { perSecond: 10, burst: 100 },
  fences: { perSecond: 1, burst: 512 },
  arriving: 1_024,
  arrivingBytes: 8 * MiB,
  tells: 64,
  leaseMs: 30_000,
  deliveries: 5,
  redeliverMs: { first: 1_000, max: 60_000 },
  staleMs: 24 * 3_600_000,
  expiredMs: 60_000,
  pingMs: 20_000,
  pongMs: 10_000,
  keptBytes: 64 * MiB,
  keptBytesOfOne: 4 * MiB,
  page: { count: 256, bytes: 2 * MiB },
};

/** How long a client waits for the word that its message is held. */
export const receiptMs = 30_000;
