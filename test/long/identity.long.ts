/** Six processes share one grant, processes die during a refresh, and calls are under way while the token ends: at full counts. */
import '../identity/shared-grant.test.js';
