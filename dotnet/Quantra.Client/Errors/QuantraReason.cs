namespace Quantra.Client;

/// <summary>Every reason that a predictor gives today; they stay the same between versions, and newer ones may come.</summary>
public static class QuantraReason
{
    /// <summary>An error of a kind without a reason of its own.</summary>
    public const string Error = "ERROR";

    /// <summary>The caller sent something that cannot be right.</summary>
    public const string InvalidInput = "INVALID_INPUT";

    /// <summary>No request, or one that breaks its own rules.</summary>
    public const string MalformedRequest = "MALFORMED_REQUEST";

    /// <summary>A bar that no market can have made.</summary>
    public const string BarsInvalid = "BARS_INVALID";

    /// <summary>A shorter history than the model reads.</summary>
    public const string TooFewBars = "TOO_FEW_BARS";

    /// <summary>No symbol of the panel can be forecast.</summary>
    public const string NoUsableSymbol = "NO_USABLE_SYMBOL";

    /// <summary>A feature's text that does not parse or is not allowed.</summary>
    public const string ExpressionInvalid = "EXPRESSION_INVALID";

    /// <summary>Feature windows made for another schema.</summary>
    public const string FeatureMismatch = "FEATURE_MISMATCH";

    /// <summary>A feature window of another shape than the model's.</summary>
    public const string WindowShape = "WINDOW_SHAPE";

    /// <summary>A horizon that the model does not forecast.</summary>
    public const string UnknownHorizon = "UNKNOWN_HORIZON";

    /// <summary>A quantile that the model does not forecast.</summary>
    public const string UnknownQuantile = "UNKNOWN_QUANTILE";

    /// <summary>A feature that the model does not read.</summary>
    public const string UnknownFeature = "UNKNOWN_FEATURE";

    /// <summary>Covariates that cannot be what they claim.</summary>
    public const string CovariatesInvalid = "COVARIATES_INVALID";

    /// <summary>A covariate that the model reads was not sent.</summary>
    public const string CovariateMissing = "COVARIATE_MISSING";

    /// <summary>A covariate that the model does not read.</summary>
    public const string UnknownCovariate = "UNKNOWN_COVARIATE";

    /// <summary>Settings that contradict themselves.</summary>
    public const string ConfigurationInvalid = "CONFIGURATION_INVALID";

    /// <summary>A score is asked for on days that the model was trained, selected or calibrated on.</summary>
    public const string InSample = "IN_SAMPLE";

    /// <summary>No model of that name.</summary>
    public const string ModelNotFound = "MODEL_NOT_FOUND";

    /// <summary>The model has no such version or alias.</summary>
    public const string VersionNotFound = "VERSION_NOT_FOUND";

    /// <summary>A model's files are damaged, incomplete, foreign or newer.</summary>
    public const string ArtifactInvalid = "ARTIFACT_INVALID";

    /// <summary>The last bar's session has not closed yet.</summary>
    public const string BarIncomplete = "BAR_INCOMPLETE";

    /// <summary>Sessions are missing between the bars.</summary>
    public const string SessionGap = "SESSION_GAP";

    /// <summary>Dates beyond the calendar that the model carries.</summary>
    public const string CalendarEnded = "CALENDAR_ENDED";

    /// <summary>An explanation method that the model does not have.</summary>
    public const string ExplainUnsupported = "EXPLAIN_UNSUPPORTED";

    /// <summary>Too much work is waiting already; try again later.</summary>
    public const string QueueFull = "QUEUE_FULL";

    /// <summary>More rows or bytes than are accepted.</summary>
    public const string RequestTooLarge = "REQUEST_TOO_LARGE";

    /// <summary>The call's time ran out.</summary>
    public const string DeadlineExceeded = "DEADLINE_EXCEEDED";

    /// <summary>The call was given up.</summary>
    public const string Cancelled = "CANCELLED";

    /// <summary>Nobody answers at that address, or the server is stopping.</summary>
    public const string Unavailable = "UNAVAILABLE";

    /// <summary>An optional package is needed and not installed.</summary>
    public const string PackageMissing = "PACKAGE_MISSING";

    /// <summary>A bug of Quantra; the server's log holds the rest.</summary>
    public const string Internal = "INTERNAL";
}
