"""`language`: the language of an answer, and whether it is that of its question."""

import pytest

from ragpulse_evaluators import Case, get_evaluator
from ragpulse_evaluators.text.language import language_of

TEXTS = {
    "en": "You can reset your password in the settings of your account. Open the menu and choose security.",
    "de": "Sie können Ihr Passwort in den Einstellungen Ihres Kontos zurücksetzen. Öffnen Sie dazu das Menü.",
    "fr": "Vous pouvez réinitialiser votre mot de passe dans les paramètres de votre compte. Ouvrez le menu.",
    "es": "Puede restablecer su contraseña en la configuración de su cuenta. Abra el menú y elija seguridad.",
    "pt": "Você pode redefinir sua senha nas configurações da sua conta. Abra o menu e escolha segurança.",
    "it": "È possibile reimpostare la password nelle impostazioni del tuo account. Apri il menu e scegli sicurezza.",
    "nl": "U kunt uw wachtwoord opnieuw instellen in de instellingen van uw account. Open het menu.",
    "no": "Du kan tilbakestille passordet ditt i innstillingene for kontoen din. Åpne menyen og velg sikkerhet.",
    "pl": "Możesz zresetować hasło w ustawieniach swojego konta. Otwórz menu i wybierz opcję, jeśli nie pamiętasz.",
    "tr": "Şifrenizi hesap ayarlarınızdan sıfırlayabilirsiniz. Menüyü açın ve güvenliği seçin; bu işlem çok kolay.",
    "ru": "Вы можете сбросить пароль в настройках вашего аккаунта. Откройте меню и выберите безопасность.",
    "uk": "Ви можете скинути пароль у налаштуваннях вашого облікового запису. Відкрийте меню та виберіть безпеку.",
    "ar": "يمكنك إعادة تعيين كلمة المرور من إعدادات حسابك. افتح القائمة ثم اختر الأمان إذا كنت لا تتذكرها",
    "hi": "आप अपने खाते की सेटिंग में पासवर्ड बदल सकते हैं। मेनू खोलें और सुरक्षा चुनें, यदि यह आवश्यक है",
    "zh": "您可以在帐户设置中重置密码。打开菜单并选择安全。",
    "ja": "アカウント設定で password をリセットできます。メニューを開いてください。",
    "ko": "계정 설정에서 비밀번호를 재설정할 수 있습니다. 메뉴를 열고 보안을 선택하십시오. 새 비밀번호를 입력하십시오.",
    "th": "คุณสามารถรีเซ็ตรหัสผ่านได้ในการตั้งค่าบัญชี",
    # Below ten words, names, code, numbers, nothing.
    "unknown": "How do I reset my password?",
    "unknown names": "foo bar baz qux quux corge grault garply waldo fred plugh xyzzy thud",
    "unknown code": "`the of and to in is that for it with as was on are be`",
    "unknown numbers": "1 2 3 4 5 6 7 8 9 10 11 12 13",
    "unknown void": "",
}


@pytest.mark.parametrize("name", TEXTS)
def test_languages(name: str) -> None:
    """A text of ten words has the language of its script and stop words; else it is unknown."""
    assert language_of(TEXTS[name]) == name.partition(" ")[0]


@pytest.mark.parametrize(
    ("question", "answer", "label", "normalized", "passing"),
    [
        (TEXTS["de"], TEXTS["de"], "de", 1.0, True),
        (TEXTS["de"], TEXTS["en"], "en", 0.0, False),
        (TEXTS["zh"], TEXTS["ja"], "ja", 0.0, False),
        ("Why?", TEXTS["fr"], "fr", None, None),
        (None, TEXTS["fr"], "fr", None, None),
        (TEXTS["fr"], "Oui.", "unknown", None, None),
        ("\x00 " * 99, "\ud800" * 99, "unknown", None, None),
    ],
)
@pytest.mark.anyio
async def test_a_mismatch(
    question: str | None, answer: str, label: str, normalized: float | None, passing: bool | None
) -> None:
    """The label is the language of the answer; the score compares it with that of the question, if both are known."""
    result = await get_evaluator("language")(Case(query=question, response=answer))
    assert (result.status, result.label, result.normalized, result.passing) == ("ok", label, normalized, passing)
