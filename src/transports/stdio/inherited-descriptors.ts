/**
 * Descriptors we got from whoever started us and would hand on to every child: what we open ourselves is closed for
 * them by the system, these are not. A lock, a listening socket or a job server's pipe has no business in a server.
 * For a program's first lines only: in somebody else's process we must not close what is not ours.
 */
import { closeSync, readdirSync, readFileSync } from 'node:fs';

const closeOnExec = 0o2000000;

/** Beside stdin, stdout and stderr. Empty where the system does not tell. */
export function inheritedDescriptors(): number[] {
  const found: number[] = [];
  for (const name of list('/proc/self/fdinfo')) {
    const descriptor = Number(name);
    if (descriptor > 2 && !isClosedOnExec(descriptor)) found.push(descriptor);
  }
  return found;
}

/** Returns how many there were. Never throws: one that cannot be closed is no reason not to start. */
export function closeInheritedDescriptors(found = inheritedDescriptors(), close = closeSync): number {
  for (const descriptor of found) {
    try {
      close(descriptor);
    } catch {
      // Closed meanwhile, or its last write failed (EIO): either way it is gone.
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

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
