/** Sets an entry, as the newest, in a map of at most `max`: past it the one that was set longest ago goes. */
export function setBounded<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, max: number): void {
  map.delete(key);
  if (map.size >= max) for (const oldest of map.keys()) if (map.delete(oldest)) break;
  map.set(key, value);
}
