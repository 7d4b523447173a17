/** Composition root of the auth service: creates its parts and connects them. */
import { type Clock, systemClock } from "../platform/base/clock.ts";
import type { Loop } from "../platform/base/loop.ts";
import type { Cache } from "../platform/cache/cache.ts";
import type { CacheSettings } from "../platform/cache/cache-settings.ts";
import { openCache } from "../platform/cache/open-cache.ts";
import { confirmFound } from "../platform/database/confirm.ts";
import type { Database, OpenDatabase, Reads } from "../platform/database/database.ts";
import { createDatabaseClock } from "../platform/database/database-clock.ts";
import { openDatabase } from "../platform/database/open.ts";
import { createOtherLeases } from "../platform/database/standbys/other-leases.ts";
import { createStandbys } from "../platform/database/standbys/standbys.ts";
import type { CallerAddress } from "../platform/door/caller-address.ts";
import type { PreparedBroker } from "../platform/messaging/broker.ts";
import { openServiceEvents } from "../platform/messaging/service-events.ts";
import { logEvents, type Subscriber } from "../platform/messaging/subscribers.ts";
import type { Logger } from "../platform/observability/logger.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import type { BoundContract } from "../platform/openapi/bind.ts";
import { type ContractDocument, contractTexts, loadContract } from "../platform/openapi/document.ts";
import type { RpcService } from "../platform/rpc/service.ts";
import { createAuthenticator, VerifiedSecrets } from "./clients/authenticate-client.ts";
import { createClientRepository } from "./clients/client-repository.ts";
import { synchroniseClients } from "./clients/synchronise-clients.ts";
import type { ShowMessage } from "./codes/text-message.ts";
import { AuthEvents, authEventStream } from "./events.ts";
import { authHttp } from "./http.ts";
import { confirmedIdentities } from "./identities/confirmed-identities.ts";
import { createIdentities } from "./identities/identities.ts";
import { janitorKinds, startJanitor } from "./janitor.ts";
import { createKeyStore } from "./keys/key-store.ts";
import { serverMetadata } from "./keys/server-metadata.ts";
import { createKeyOf } from "./limits/attempt-counters.ts";
import { createCacheCounters, preferCache, rehearseCounting } from "./limits/cache-counters.ts";
import { createDatabaseCounters } from "./limits/database-counters.ts";
import { createGuessObserver } from "./limits/guess-observer.ts";
import { createGuessing, guessingRules } from "./limits/guessing.ts";
import { shareHashing } from "./password-hashing/argon2id.ts";
import { authRpc } from "./rpc.ts";
import { startPulse } from "./running-time.ts";
import { outbox, readLeases, relayLeases } from "./schema.ts";
import type { AuthSettings } from "./settings.ts";
import { createTokenOperations } from "./token-operations.ts";
import { createAccessTokens } from "./tokens/access-token.ts";
import type { Confirmed } from "./tokens/confirmed.ts";
import { createHasActiveAuthorization } from "./tokens/has-active-authorization.ts";
import { createAuthorizationRepository } from "./tokens/introspect.ts";
import { createUserAuthorizations } from "./tokens/user-authorizations.ts";

/** The service's schema and the history of its migrations. */
export const authMigrations = { schema: "auth", folder: new URL("../../drizzle/auth", import.meta.url) };

export interface AuthService {
  readonly http: BoundContract;
  readonly document: ContractDocument;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  /** The broker of the service; undefined if it has none. */
  readonly broker: PreparedBroker | undefined;
  /**
   * Synchronises the clock and the registered clients; throws if the database is unavailable.
   * @throws SettingsError if the settings contradict what the database has
   */
  prepare(): Promise<void>;
  /** Starts the janitor and the relay of events. */
  startWorkers(): void;
  /** Stops the workers and closes the database. */
  stop(): Promise<void>;
}

/** The types of events that an operator should look at. */
const loggedAsWarnings = [
  AuthEvents.authorizationReuseDetected.type,
  AuthEvents.accountLocked.type,
  AuthEvents.codesLimitReached.type,
  AuthEvents.codesBreakerOpened.type,
];

/** The types of events after which a token is no longer active. */
const endings: ReadonlySet<string> = new Set([
  AuthEvents.identityDeleted.type,
  AuthEvents.authorizationReuseDetected.type,
  AuthEvents.authorizationRevoked.type,
  AuthEvents.tokenRevoked.type,
]);

interface Dependencies {
  readonly settings: AuthSettings;
  /** How many processes share the processors; 1 unless given. */
  readonly workers?: number;
  readonly logger: Logger;
  /** The log of events; undefined: there is none. */
  readonly eventLog: Logger | undefined;
  readonly metrics: Metrics;
  /** Whether every response is validated against the document; in tests and development. */
  readonly validateResponses: boolean;
  readonly clock?: Clock;
  /** Unless given, a caller's address is that of its connection. */
  readonly callerAddress?: CallerAddress;
  /** Gets each message that the log has in the place of a phone, which only development mode has. */
  readonly showMessage?: ShowMessage | undefined;
  /** Subscribers of the service's events, which get each event before it is logged; none unless given. */
  readonly subscribers?: readonly Subscriber[];
}

export async function createAuthService(dependencies: Dependencies): Promise<AuthService> {
  const { settings, workers: sharing = 1, logger, metrics, validateResponses } = dependencies;
  const { issuer } = settings;
  shareHashing(sharing);
  const keys = createKeyStore(settings.signing);
  const [database, document] = await Promise.all([
    openDatabase(settings.database, authMigrations, metrics.database("auth"), logger, {
      rerunsWaiting: true,
    }),
    loadContract(contractTexts("auth", "auth")),
  ]);
  const { db, reads } = database;
  const clock = createAuthClock(dependencies, reads);
  // The embedded database has the clock of its process, and pauses with it.
  const isEmbedded = settings.database.kind === "embedded";
  const followsClock = !isEmbedded && !dependencies.clock?.isSimulated;
  const verified = new VerifiedSecrets();
  const standbys = createReadStandbys(database, logger);
  const confirmed: Confirmed = {
    untilStandbysKnow: knownToStandbys(database, standbys, isEmbedded),
    confirmFound: (act, isFound) => confirmFound(database.confirm, act, isFound),
  };
  const authorizations = createAuthorizationRepository(reads, standbys);
  const accessTokens = createAccessTokens({ keys, issuer, clock, type: settings.accessTokenType });
  const identities = confirmedIdentities(createIdentities(db, clock), confirmed);
  const cache = settings.cache && (await openAuthCache(settings.cache, logger, metrics));
  const guessing = createAuthGuessing(dependencies, { db, clock }, cache);
  const authenticator = createAuthenticator({
    clients: createClientRepository(reads),
    verified,
    internalClient: settings.internalClient,
    platformSecurityApiKeys: settings.platformSecurityApiKeys,
    firstPartyApps: settings.firstPartyApps !== undefined,
  });
  const shared = {
    db,
    reads,
    clock,
    accessTokens,
    authorizations,
    confirmed,
    identities,
    guessing,
    authenticator,
  };
  const { codes, rotations, ...tokens } = createTokenOperations({ ...dependencies, ...shared });
  const metadata = serverMetadata(issuer, settings.clients, settings.firstPartyApps !== undefined);
  const own = { identities, authorizations: createUserAuthorizations(db, confirmed), guessing };
  const { callerAddress } = dependencies;
  const http = authHttp(
    { authenticator, ...own, ...tokens, keys, metadata },
    { document, logger, observer: metrics.http, validateResponses, callerAddress },
  );
  const events = await openAuthEvents(dependencies, database, confirmed);
  const { broker } = events;

  const workers: Loop[] = [];
  return {
    http,
    document,
    rpc: [authRpc({ authenticator, introspect: tokens.introspect })],
    database,
    broker: broker && { prepare: () => broker.prepareStream(authEventStream) },
    async prepare() {
      if (followsClock) await clock.measure();
      await synchroniseClients(
        { db, clock, verified, warn: (message) => logger.warn(message) },
        { registrations: settings.clients, revision: settings.clientsRevision },
      );
      // Clients may have been disabled, which ends their authorizations.
      await confirmed.untilStandbysKnow();
    },
    startWorkers() {
      if (followsClock) workers.push(clock.start());
      if (!isEmbedded) workers.push(startPulse(db));
      if (standbys) workers.push(standbys.start());
      workers.push(
        startJanitor({
          db,
          logger,
          intervalSeconds: settings.janitorIntervalSeconds,
          observer: metrics.janitor("auth", janitorKinds),
        }),
        events.startRelay(),
      );
    },
    async stop() {
      await Promise.all([rotations.stop(), ...workers.map((worker) => worker.stop())]);
      await codes?.stop();
      await Promise.all([broker?.close(), cache?.close()]);
      await database.close();
    },
  };
}

function createAuthClock({ clock, logger }: Dependencies, db: Reads) {
  return createDatabaseClock({
    db,
    clock: clock ?? systemClock,
    report: (offsetMs) =>
      logger.warn(
        { offsetMs },
        "The clocks of this process and of the database differ; the database's holds",
      ),
  });
}

/** @returns undefined if no standbys are read from */
function createReadStandbys({ standbys }: OpenDatabase, logger: Logger) {
  return (
    standbys &&
    createStandbys({
      ...standbys,
      table: readLeases,
      report: (standby, isRead, why) => {
        if (isRead) logger.info({ standby }, "Introspection reads from a standby");
        else logger.warn({ standby, ...why }, "Introspection does not read from a standby");
      },
    })
  );
}

/** How an ending waits for the standbys that this process or others read from. The embedded database has none. */
function knownToStandbys(
  { reads }: OpenDatabase,
  standbys: ReturnType<typeof createReadStandbys>,
  isEmbedded: boolean,
): () => Promise<void> {
  if (isEmbedded) return () => Promise.resolve();
  return standbys ? () => standbys.applied() : createOtherLeases({ db: reads, table: readLeases });
}

function openAuthCache(settings: CacheSettings, logger: Logger, metrics: Metrics) {
  return openCache({
    settings,
    prefix: "gatepost:auth:",
    name: "gatepost-auth",
    whileAway: "attempts are counted in the database",
    rehearse: rehearseCounting,
    logger,
    observer: metrics.cache("auth"),
  });
}

/** The limits of guesses, counted in the cache if there is one, and else in the database. */
function createAuthGuessing(
  { settings, metrics, logger }: Dependencies,
  { db, clock }: { readonly db: Database; readonly clock: Clock },
  cache: Cache | undefined,
) {
  const keyOf = createKeyOf(settings.issuer);
  const databaseCounters = createDatabaseCounters(db, keyOf);
  return createGuessing({
    rules: guessingRules,
    counters: cache ? preferCache(createCacheCounters(cache, keyOf), databaseCounters) : databaseCounters,
    hasActiveAuthorization: createHasActiveAuthorization(db),
    observer: createGuessObserver({ db, clock, metrics, logger }),
  });
}

function openAuthEvents(
  { settings, logger, eventLog, metrics, subscribers = [] }: Dependencies,
  { db }: OpenDatabase,
  { untilStandbysKnow }: Confirmed,
) {
  return openServiceEvents({
    name: "auth",
    source: settings.issuer,
    db,
    subscribers,
    logger,
    tables: { outbox, leases: relayLeases },
    broker: settings.broker,
    stream: authEventStream,
    kinds: Object.values(AuthEvents),
    log: eventLog && logEvents(eventLog, loggedAsWarnings),
    // A subscriber that learns of an ending, and introspects the token, does not find it active on a standby.
    mayDeliver: async (events) => {
      if (events.some(({ type }) => endings.has(type))) await untilStandbysKnow();
    },
    observe: (backlog) => metrics.outbox("auth", backlog),
  });
}
