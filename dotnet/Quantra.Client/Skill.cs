using System.Globalization;

namespace Quantra.Client;

/// <summary>How much smaller a model's loss was than its best rival's on days that it had not seen.</summary>
/// <param name="Rival">The best baseline on the same days.</param>
/// <param name="Improvement">As a share of the rival's loss: 0.01 is one per cent better.</param>
/// <param name="Lower">Lower end of the interval.</param>
/// <param name="Upper">Upper end of the interval.</param>
/// <param name="Level">Of the interval, such as 0.9.</param>
/// <param name="Verdict">Whether the improvement can be told from luck.</param>
/// <param name="Sentence">The same in words.</param>
/// <param name="DaysShort">Days that are lacking for any verdict; 0 = none.</param>
public sealed record Skill(
    string Rival,
    double Improvement,
    double Lower,
    double Upper,
    double Level,
    SkillVerdict Verdict,
    string Sentence,
    int DaysShort)
{
    /// <summary>One short line, the same in every culture.</summary>
    /// <returns>Such as "skill: not shown, -0.4 % (90 %: -2.3 to +1.0 %) against GARCH(1,1)-t on held-out days".</returns>
    public override string ToString() => string.Create(
        CultureInfo.InvariantCulture,
        $"skill: {Said}, {100 * Improvement:+0.0;-0.0} % ({100 * Level:0} %: {100 * Lower:+0.0;-0.0} to {100 * Upper:+0.0;-0.0} %) against {Rival} on held-out days");

    private string Said => Verdict switch
    {
        SkillVerdict.Better => "shown",
        SkillVerdict.Worse => "none, worse",
        _ => "not shown",
    };
}
