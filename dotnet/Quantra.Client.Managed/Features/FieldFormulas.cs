namespace Quantra.Client.Managed;

/// <summary>The definitions of the columns that expressions read. An artifact with others is rejected.</summary>
internal static class FieldFormulas
{
    private static readonly Dictionary<string, Dictionary<string, string>> Groups = new(StringComparer.Ordinal)
    {
        ["adjustment"] = new(StringComparer.Ordinal)
        {
            ["end"] = "the symbol's last bar",
            ["before"] = "the symbol's last bar before the day",
            ["later"] = "product of the split ratios of all later days, multiplied from the last day backwards",
            ["kept"] = "1 - cash dividend / (raw close at before * (later / later at before)); 1 without dividend or before",
            ["paid"] = "product of the kept of all later days, multiplied from the last day backwards",
            ["factor with adj_close"] = "(adj_close / raw close) / (adj_close at end / raw close at end)",
            ["factor with splits or dividends"] = "(paid / later) / (paid at end / later at end)",
            ["factor with neither"] = "1",
            ["volume with adj_close"] = "raw volume / factor",
            ["volume with splits or dividends"] = "raw volume * (later / later at end)",
            ["volume with neither"] = "raw volume",
        },
        ["observed"] = new(StringComparer.Ordinal)
        {
            ["open"] = "raw open * factor",
            ["high"] = "raw high * factor",
            ["low"] = "raw low * factor",
            ["close"] = "raw close * factor",
            ["volume"] = "volume of the adjustment",
            ["money"] = "raw close * raw volume",
        },
        ["known"] = new(StringComparer.Ordinal)
        {
            ["weekday"] = "0 = Monday to 4 = Friday",
            ["sessions_to_month_end"] = "sessions that follow in the same month, unannounced holidays counted as sessions",
            ["sessions_from_month_start"] = "sessions that came before in the same month",
            ["days_to_holiday"] = "calendar days until the next announced holiday, at most 30",
            ["days_from_holiday"] = "calendar days since the last holiday, at most 30",
        },
        ["covariates"] = new(StringComparer.Ordinal)
        {
            ["observed"] =
                "value of the latest date among the rows with known_from up to the session, "
                + "the one that became known last if several; unknown where the symbol has no bar",
            ["known"] =
                "value of the latest date up to the session's own among the rows known by "
                + "the last bar, the one that became known last if several; of future sessions too",
        },
    };

    /// <summary>Columns of the bars.</summary>
    public static IReadOnlyCollection<string> Observed => Groups["observed"].Keys;

    /// <summary>Columns of the calendar.</summary>
    public static IReadOnlyCollection<string> Known => Groups["known"].Keys;

    /// <summary>Reads the definitions of an artifact.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: one is missing, unknown or different.</exception>
    public static void Check(JsonRecord fields)
    {
        foreach (var (group, formulas) in Groups)
        {
            var stored = fields.Record(group);
            foreach (var (name, formula) in formulas)
            {
                if (stored.Text(name) != formula)
                    throw stored.Refusal(name, $"differs from this version's, '{formula}'");
            }
            stored.End();
        }
        fields.End();
    }
}
