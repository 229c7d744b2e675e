/** All members, optional ones too, must be given. For copies made member by member: a forgotten member does not compile. */
export type Complete<T> = { readonly [Key in keyof Required<T>]: T[Key] };
