/** Every member has to be written, an optional one too. For copies member by member: a forgotten member does not compile. */
export type Complete<T> = { readonly [Key in keyof Required<T>]: T[Key] };
