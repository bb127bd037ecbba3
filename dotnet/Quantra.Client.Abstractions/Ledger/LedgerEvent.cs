using System.Globalization;

namespace Quantra.Client;

/// <summary>An event of a model or of the ledger, for example an alarm or a promotion.</summary>
/// <param name="Number">Grows with every event.</param>
/// <param name="MadeAt">When it was recorded, by the clock of the machine that recorded it.</param>
/// <param name="Kind">For example "champion", "alarm" or "retraining".</param>
/// <param name="Model">Name of the model; "" = none.</param>
/// <param name="Version">Version of the model; 0 = none.</param>
/// <param name="Session">Session that the event is about; null = none.</param>
/// <param name="Reason">The reason in words.</param>
/// <param name="DetailJson">Details as JSON.</param>
public sealed record LedgerEvent(
    long Number,
    DateTimeOffset MadeAt,
    string Kind,
    string Model,
    int Version,
    DateOnly? Session,
    string Reason,
    string DetailJson)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "7: alarm of small@1 as of 2013-03-08: coverage too few".</returns>
    public override string ToString()
    {
        var version = Version == 0 ? "" : string.Create(CultureInfo.InvariantCulture, $"@{Version}");
        var model = Model.Length == 0 ? "" : $" of {Model}{version}";
        return string.Create(CultureInfo.InvariantCulture, $"{Number}: {Kind}{model}{MessageFormat.AsOf(Session)}: {Reason}");
    }
}
