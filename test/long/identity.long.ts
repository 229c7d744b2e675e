/** Six processes share one grant, processes die during a refresh, calls are under way while the token ends, and logins are attacked: at full counts. */
import '../identity/login.test.js';
import '../identity/login-command.test.js';
import '../identity/renewal.test.js';
import '../identity/shared-grant.test.js';
