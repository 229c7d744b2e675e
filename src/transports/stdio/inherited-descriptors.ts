/**
 * Descriptors that this process inherited without close-on-exec and would pass on to every child: a lock, a listening socket or a job
 * server's pipe. Descriptors that Node opens itself are close-on-exec.
 * Only for the first lines of a program: an embedder's process needs its own descriptors.
 */
import { closeSync, readdirSync, readFileSync } from 'node:fs';

const closeOnExec = 0o2000000;

/** Without stdin, stdout and stderr. Empty where the system does not list them. */
export function inheritedDescriptors(): number[] {
  try {
    const descriptors = readdirSync('/proc/self/fdinfo').map(Number);
    return descriptors.filter((descriptor) => descriptor > 2 && !isClosedOnExec(descriptor));
  } catch {
    return [];
  }
}

/** Returns how many there were. Never throws. */
export function closeInheritedDescriptors(found = inheritedDescriptors(), close = closeSync): number {
  for (const descriptor of found) {
    try {
      close(descriptor);
    } catch {
      // Closed meanwhile, or its last write failed (EIO): it is closed in both cases.
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
