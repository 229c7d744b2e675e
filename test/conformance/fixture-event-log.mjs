/** Stores the events of the legacy streams of the fixture, so that a client can resume a lost stream. */
const eventsMax = 1_000;

export class EventLog {
  #events = new Map();
  #count = 0;

  async storeEvent(streamId, message) {
    this.#count += 1;
    const id = `${streamId}_${this.#count}`;
    this.#events.set(id, { streamId, message });
    if (this.#events.size > eventsMax) this.#events.delete(this.#events.keys().next().value);
    return id;
  }

  async getStreamIdForEventId(id) {
    return this.#events.get(id)?.streamId;
  }

  async replayEventsAfter(lastId, { send }) {
    const streamId = this.#events.get(lastId)?.streamId ?? '';
    let isAfter = false;
    for (const [id, event] of this.#events) {
      // A priming event has no message, so it is not sent again.
      if (isAfter && event.streamId === streamId && Object.keys(event.message).length > 0)
        await send(id, event.message);
      if (id === lastId) isAfter = true;
    }
    return streamId;
  }
}
