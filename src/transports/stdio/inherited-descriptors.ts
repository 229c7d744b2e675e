/**
 * Closes descriptors that this process inherited without close-on-exec and would pass on to every child: a lock, a listening
 * socket or the pipe of a job server. Descriptors that Node opens are close-on-exec.
 * Closing is only for the start of the hostler command: the process of an embedder needs its descriptors.
 */
import { closeSync, readdirSync, readFileSync } from 'node:fs';

const closeOnExec = 0o2000000;

/** Excludes stdin, stdout and stderr. Empty if the system does not list descriptors. */
export function inheritedDescriptors(): number[] {
  try {
    const descriptors = readdirSync('/proc/self/fdinfo').map(Number);
    return descriptors.filter((descriptor) => descriptor > 2 && !isClosedOnExec(descriptor));
  } catch {
    return [];
  }
}

/** Returns the number of descriptors found. Never throws. */
export function closeInheritedDescriptors(found = inheritedDescriptors(), close = closeSync): number {
  for (const descriptor of found) {
    try {
      close(descriptor);
    } catch {
      // EBADF: closed meanwhile. EIO: the last write failed, but the descriptor is closed.
    }
  }
  return found.length;
}

function isClosedOnExec(descriptor: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1];
    return flags === undefined || (Number.parseInt(flags, 8) & closeOnExec) !== 0;
  } catch {
    return true;
  }
}
