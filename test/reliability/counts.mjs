/** What is there, counted from the system's own tables. */
import { readdirSync, readlinkSync } from 'node:fs';

export const processes = () =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

/** Of this process, but for the one that looks. */
export const descriptors = () =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return !readlinkSync(`/proc/self/fd/${fd}`).includes('/proc/');
    } catch {
      return false;
    }
  }).length;
