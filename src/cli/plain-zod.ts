/**
 * To be imported before anything that has schemas: zod writes and compiles a function for each of them when it is first used,
 * which pays after hundreds of uses. A configuration is read once.
 * Not for the library: the setting holds for all of the process.
 */
import { z } from 'zod';

z.config({ jitless: true });
