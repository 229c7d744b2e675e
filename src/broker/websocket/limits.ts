/** Path and bounds of the WebSocket transport. */
export const brokerPath = '/broker';

const KiB = 1024;
const MiB = 1024 * KiB;

/** From the TCP connection to the hello, the TLS handshake and the upgrade included. */
export const helloMs = 5_000;
/** Sockets without a hello: of one address, and in all. */
export const unadmittedOfAddressMax = 128;
export const unadmittedMax = 1_024;
/** All that a socket may send before its hello was accepted. */
export const helloBytesMax = 64 * KiB;
export const connectionsOfWorkerMax = 32;

/** Parts of one message. Our clients send a message in one part, and each part keeps what it arrived with in memory. */
export const fragmentsMax = 64;
/** Network reads that one message may arrive in: 4 MiB in the smallest packets. */
export const chunksMax = 16 * KiB;

/** Bytes that wait to be read by a worker, over all its connections; and by all workers, beside what each of them always has. */
export const outboundOfWorkerMax = 16 * MiB;
export const outboundMax = 128 * MiB;
export const outboundOfEach = 128 * KiB;
/** A connection is cut when it reads none of the waiting messages for so long. */
export const slowMs = 60_000;

/** Requests of one connection that are read and not answered. Above this nothing more is read from it. */
export const unansweredMax = 256;
export const unansweredBytesMax = 8 * MiB;

/** After so much silence a side sends a ping; the other side must send something within `pongMs`. */
export const pingMs = 20_000;
export const pongMs = 10_000;

/**
 * What a message, and each key in it, costs beside its bytes. Reading a message of 31 bytes takes 2 us, and the log looks up each key:
 * 16 MiB of such messages in a second would occupy the host.
 */
export const itemBytes = 128;

/** Time that a worker may use up at once after it was idle. */
export const burstMs = 250;

/** Time for the answer to a close frame. */
export const goodbyeMs = 1_000;
/** Time that a worker waits for a receipt, an answer to `ask` or a manifest. */
export const answerMs = 10_000;
