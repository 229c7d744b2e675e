/** Requires all members, even optional ones. A copy that is made member by member and forgets one does not compile. */
export type Complete<T> = { readonly [Key in keyof Required<T>]: T[Key] };
