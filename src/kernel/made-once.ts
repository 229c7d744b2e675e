/** What is made when it is first asked for, and kept: for what takes long to make and is not needed by every start. */
export function madeOnce<T extends object>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
