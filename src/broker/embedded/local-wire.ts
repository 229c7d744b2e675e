/** Two ends of a wire inside one process. Frames go over in order, each after whoever sent it is done. */
import type { CloseReason, Wire, WireReader } from './wire.js';

class LocalEnd implements Wire {
  readonly bufferedBytes = 0;
  reader: WireReader | undefined;
  other: LocalEnd | undefined;
  isOver = false;

  send(frame: Buffer, flushed?: () => void): void {
    queueMicrotask(() => {
      if (!this.other?.isOver) this.other?.reader?.frame(frame);
      flushed?.();
    });
  }

  pause(): void {}
  resume(): void {}

  close(why: CloseReason): void {
    queueMicrotask(() => {
      for (const end of [this, this.other]) {
        if (!end || end.isOver) continue;
        end.isOver = true;
        end.reader?.ended(why);
      }
    });
  }
}

/** `attach` and the caller each get one end, and hand over who reads there. */
export function localWire(attach: (wire: Wire) => WireReader, reader: WireReader): Wire {
  const [near, far] = [new LocalEnd(), new LocalEnd()];
  near.other = far;
  far.other = near;
  near.reader = reader;
  far.reader = attach(far);
  return near;
}
