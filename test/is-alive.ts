import { factsOf } from '../src/transports/stdio/process-table.js';
import { realTable } from './real-table.js';

/** True if the process runs. A zombie does not count as running. */
export const isAlive = (pid: number): boolean => {
  if (!(pid > 0)) throw new Error(`no process has the id ${pid}`);
  const facts = factsOf(realTable.read(pid));
  return facts !== undefined && facts.state !== 'Z';
};
