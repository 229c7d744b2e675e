/** The one path that the broker serves. Apart, so that a worker does not load the listener. */
export const brokerPath = '/broker';
