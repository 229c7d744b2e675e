import path from 'node:path';

/** Folder of the log of calls. Apart from serve-workers.ts, so that `doctor` loads nothing else of the broker. */
export const logFolder = (dataDir: string): string => path.join(dataDir, 'broker');
