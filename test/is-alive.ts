import { factsOf } from '../src/transports/stdio/process-table.js';
import { realTable } from './real-table.js';

/** Whether a process runs. One that ended and that nobody has waited for yet does not. */
export const isAlive = (pid: number): boolean => {
  if (!(pid > 0)) throw new Error(`no process has the id ${pid}`);
  const facts = factsOf(realTable.read(pid));
  return facts !== undefined && facts.state !== 'Z';
};
