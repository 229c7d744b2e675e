/** What a command's exit says to a script. One table for all commands. */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  refused: 3,
  unavailable: 4,
} as const;
