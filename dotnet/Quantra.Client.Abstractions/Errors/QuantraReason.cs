namespace Quantra.Client;

/// <summary>Reasons of errors. They are stable between versions; newer versions may add others.</summary>
public static class QuantraReason
{
    /// <summary>An error without a more specific reason.</summary>
    public const string Error = "ERROR";

    /// <summary>The caller sent invalid input.</summary>
    public const string InvalidInput = "INVALID_INPUT";

    /// <summary>The request is empty or inconsistent.</summary>
    public const string MalformedRequest = "MALFORMED_REQUEST";

    /// <summary>Bars that cannot be real, such as one with a negative price.</summary>
    public const string BarsInvalid = "BARS_INVALID";

    /// <summary>Fewer bars than the model needs.</summary>
    public const string TooFewBars = "TOO_FEW_BARS";

    /// <summary>No symbol of the panel can be forecast.</summary>
    public const string NoUsableSymbol = "NO_USABLE_SYMBOL";

    /// <summary>A feature expression that does not parse or is not allowed.</summary>
    public const string ExpressionInvalid = "EXPRESSION_INVALID";

    /// <summary>Feature windows computed for another model's schema.</summary>
    public const string FeatureMismatch = "FEATURE_MISMATCH";

    /// <summary>A feature window whose shape differs from the model's.</summary>
    public const string WindowShape = "WINDOW_SHAPE";

    /// <summary>A horizon that the model does not forecast.</summary>
    public const string UnknownHorizon = "UNKNOWN_HORIZON";

    /// <summary>A quantile that the model does not forecast.</summary>
    public const string UnknownQuantile = "UNKNOWN_QUANTILE";

    /// <summary>A feature that the model does not read.</summary>
    public const string UnknownFeature = "UNKNOWN_FEATURE";

    /// <summary>Covariates that are malformed or inconsistent.</summary>
    public const string CovariatesInvalid = "COVARIATES_INVALID";

    /// <summary>A covariate that the model reads was not sent.</summary>
    public const string CovariateMissing = "COVARIATE_MISSING";

    /// <summary>A covariate that the model does not read.</summary>
    public const string UnknownCovariate = "UNKNOWN_COVARIATE";

    /// <summary>A session of a stream that is not open.</summary>
    public const string UnknownSession = "UNKNOWN_SESSION";

    /// <summary>The id of a request in progress or of an open session.</summary>
    public const string DuplicateId = "DUPLICATE_ID";

    /// <summary>Settings that are invalid or contradict each other.</summary>
    public const string ConfigurationInvalid = "CONFIGURATION_INVALID";

    /// <summary>A score on days that the model was trained, selected or calibrated on.</summary>
    public const string InSample = "IN_SAMPLE";

    /// <summary>The model does not exist.</summary>
    public const string ModelNotFound = "MODEL_NOT_FOUND";

    /// <summary>The model does not have this version or alias.</summary>
    public const string VersionNotFound = "VERSION_NOT_FOUND";

    /// <summary>A model's files are damaged, incomplete, or from another program or a newer version.</summary>
    public const string ArtifactInvalid = "ARTIFACT_INVALID";

    /// <summary>The last bar's session has not closed yet.</summary>
    public const string BarIncomplete = "BAR_INCOMPLETE";

    /// <summary>Bars contradict the history of their symbol.</summary>
    public const string BarSuspect = "BAR_SUSPECT";

    /// <summary>The server's ledger cannot be read or written.</summary>
    public const string LedgerUnavailable = "LEDGER_UNAVAILABLE";

    /// <summary>The server has no ledger.</summary>
    public const string NoLedger = "NO_LEDGER";

    /// <summary>The server cannot compare or promote versions.</summary>
    public const string LifecycleUnavailable = "LIFECYCLE_UNAVAILABLE";

    /// <summary>Sessions are missing between the bars.</summary>
    public const string SessionGap = "SESSION_GAP";

    /// <summary>Dates that the model's calendar does not cover.</summary>
    public const string CalendarEnded = "CALENDAR_ENDED";

    /// <summary>The last bar is older than allowed.</summary>
    public const string BarsStale = "BARS_STALE";

    /// <summary>The session cannot continue; open a new one with its whole history.</summary>
    public const string Resubscribe = "RESUBSCRIBE";

    /// <summary>An explanation method that the model does not have.</summary>
    public const string ExplainUnsupported = "EXPLAIN_UNSUPPORTED";

    /// <summary>The token is missing, or the server does not know it.</summary>
    public const string Unauthenticated = "UNAUTHENTICATED";

    /// <summary>The token does not have the role for the call.</summary>
    public const string PermissionDenied = "PERMISSION_DENIED";

    /// <summary>The call changed nothing; retry it.</summary>
    public const string TryAgain = "TRY_AGAIN";

    /// <summary>Too many requests are queued; retry later.</summary>
    public const string QueueFull = "QUEUE_FULL";

    /// <summary>The request exceeds the limit of rows or bytes.</summary>
    public const string RequestTooLarge = "REQUEST_TOO_LARGE";

    /// <summary>No response within the call's timeout.</summary>
    public const string DeadlineExceeded = "DEADLINE_EXCEEDED";

    /// <summary>The call was cancelled.</summary>
    public const string Cancelled = "CANCELLED";

    /// <summary>The server is unreachable or shutting down.</summary>
    public const string Unavailable = "UNAVAILABLE";

    /// <summary>A required Python package is not installed.</summary>
    public const string PackageMissing = "PACKAGE_MISSING";

    /// <summary>A bug in Quantra; the server's log has the details.</summary>
    public const string Internal = "INTERNAL";
}
