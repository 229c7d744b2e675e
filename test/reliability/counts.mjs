/** Counts processes and descriptors in the tables of the system. */
import { readdirSync, readlinkSync } from 'node:fs';

export const processes = () =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

/** Open descriptors of this process, without the one that reads the folder. */
export const descriptors = () =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return !readlinkSync(`/proc/self/fd/${fd}`).includes('/proc/');
    } catch {
      return false;
    }
  }).length;
