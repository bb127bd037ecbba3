using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>What forecasts and warnings use of a model's card.</summary>
internal sealed class ModelCard
{
    private const string Unadjusted = "none";

    private ModelCard(string json) => Json = json;

    /// <summary>The card as canonical JSON.</summary>
    public string Json { get; }

    /// <summary>The skill on held-out days; null if the card does not state it.</summary>
    public Skill? Skill { get; private init; }

    /// <summary>Symbols that the model or its ancestors were trained on; null if unknown.</summary>
    public IReadOnlySet<string>? Symbols { get; private init; }

    /// <summary>Whether the training bars recorded splits and dividends; false if unknown.</summary>
    public bool IsAdjusted { get; private init; }

    /// <summary>One sentence if the network kept its initial weights; else empty.</summary>
    public string StartNote { get; private init; } = "";

    /// <summary>Reads the card of a manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a section is malformed.</exception>
    public static ModelCard Read(JsonRecord manifest)
    {
        // The manifest is canonical, so that the card is its text with two fewer spaces of indentation.
        var json = manifest.Json("card").GetRawText().ReplaceLineEndings("\n").Replace("\n  ", "\n", StringComparison.Ordinal) + "\n";
        var card = manifest.Record("card");
        var data = card.Has("data") ? card.Record("data") : null;
        return new ModelCard(json)
        {
            Skill = card.Has("skill") ? ReadSkill(card.Record("skill")) : null,
            Symbols = data is null ? null : TrainedSymbols(card, data),
            IsAdjusted = data is not null && data.Text("adjustment") != Unadjusted,
            StartNote = ReadStartNote(card),
        };
    }

    private static string ReadStartNote(JsonRecord card)
    {
        if (!card.Has("training") || card.Record("training") is var training && (training.Integer("best_epoch") > 0 || training.Records("epochs").Length == 0))
            return "";
        if (card.Has("ancestors") && card.Records("ancestors").Length > 0)
            return "the training added nothing to the weights that it started from";
        var recipe = card.Has("recipe") ? card.Record("recipe") : null;
        var scale = recipe?.Has("scale") == true && recipe.Json("scale").ValueKind == System.Text.Json.JsonValueKind.String ? recipe.Text("scale") : "";
        var start = scale switch
        {
            "har" => "HAR",
            "garch" => "GARCH",
            "mix" => "the mix of HAR and GARCH",
            "window" => "the volatility of each window",
            _ => "its start",
        };
        if (recipe?.Has("network_highway") == true && recipe.Json("network_highway").ValueKind == System.Text.Json.JsonValueKind.True)
            return $"the network added nothing to {start} and a linear map of the features on these data";
        return $"the network added nothing to {start} on these data{(scale is "har" or "garch" ? $": this model forecasts as `{scale}` does" : "")}";
    }

    private static HashSet<string> TrainedSymbols(JsonRecord card, JsonRecord data)
    {
        var symbols = data.Texts("symbols").ToHashSet(StringComparer.Ordinal);
        if (data.Has("untaught"))
            symbols.ExceptWith(data.Texts("untaught"));
        foreach (var ancestor in card.Has("ancestors") ? card.Records("ancestors") : [])
            symbols.UnionWith(ancestor.Texts("symbols"));
        return symbols;
    }

    private static Skill ReadSkill(JsonRecord record)
    {
        var (rival, level) = (record.Text("baseline"), record.Number("level"));
        var (improvement, lower, upper) = (record.Number("improvement"), record.Number("lower"), record.Number("upper"));
        var daysShort = record.Has("days_short") ? record.Integer("days_short") : 0;
        var verdict = daysShort > 0 ? SkillVerdict.Undecided : lower > 0 ? SkillVerdict.Better : upper < 0 ? SkillVerdict.Worse : SkillVerdict.Undecided;
        var shown = verdict switch
        {
            SkillVerdict.Better => "shown",
            SkillVerdict.Worse => "none, worse",
            _ => "not shown",
        };
        var line = $"skill: {shown}, improvement {Percent(improvement)} % ({(100 * level).ToString("F0", CultureInfo.InvariantCulture)} %: "
            + $"{Percent(lower)} to {Percent(upper)} %) on held-out days against {rival}";
        return new Skill(rival, improvement, lower, upper, level, verdict, record.Text("sentence"), daysShort, line);
    }

    private static string Percent(double share)
    {
        var text = (100 * share).ToString("F1", CultureInfo.InvariantCulture);
        return text.StartsWith('-') ? text : "+" + text;
    }
}
