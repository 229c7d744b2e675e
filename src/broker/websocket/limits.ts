/** Path, headers and bounds of the WebSocket transport. */
export const brokerPath = '/broker';
/** Header of the upgrade with the id of the worker process. Its key is the bearer token. */
export const sessionHeader = 'hostler-session';
/** Challenge of a broker that refuses a key. A proxy that wants credentials of its own sends another one. */
export const keyChallenge = 'Bearer realm="hostler"';

const KiB = 1024;
const MiB = 1024 * KiB;

/** Longest time from the TCP connection to the end of the upgrade, the TLS handshake included. */
export const upgradeMs = 5_000;
/** Sockets that are not upgraded: from one address, and in all. */
export const unadmittedOfAddressMax = 128;
export const unadmittedMax = 1_024;
export const connectionsOfWorkerMax = 32;

/** Fragments of one message. Workers of Hostler send one. Each fragment keeps the whole chunk that contains it in memory. */
export const fragmentsMax = 64;
/** In how many network reads one message may arrive: 4 MiB in the smallest packets. */
export const chunksMax = 16 * KiB;

/** Unread bytes of one worker, over all its connections. */
export const outboundOfWorkerMax = 16 * MiB;
/** Unread bytes of all workers. */
export const outboundMax = 128 * MiB;
/** Unread bytes that a worker may have even if `outboundMax` is reached. */
export const outboundOfEach = 128 * KiB;
/** A connection is cut if it reads none of its waiting messages for this long. */
export const slowMs = 60_000;

/** Requests of one connection that are read and not answered. Above this nothing more is read from it. */
export const unansweredMax = 256;
export const unansweredBytesMax = 8 * MiB;

/** A side sends a ping after every second of these intervals; the other side must send something within one. */
export const heartbeatMs = 10_000;

/**
 * A message, and each key in it, counts this many bytes in addition to its length. Reading a message of 31 bytes takes 2 us, and the
 * log looks up each key: 16 MiB of such messages in a second would occupy the host.
 */
export const itemBytes = 128;

/** A worker that was idle may send the bytes of this much time at once. */
export const burstMs = 250;

/** Time for the answer to a close frame. */
export const goodbyeMs = 1_000;
/** Time that a worker waits for a receipt, an answer to `ask` or a manifest. */
export const answerMs = 10_000;
